//! Tests of `docs/headroom.service`. It starts an existing command, in the directory that the documents name, with the
//! restrictions that they describe.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Command,
};

/// Directives that the rig's documentation and the unit's own comments promise.
const HARDENED: &[(&str, &str)] = &[
    ("NoNewPrivileges", "yes"),
    ("CapabilityBoundingSet", ""),
    ("ProtectSystem", "strict"),
    ("ProtectHome", "yes"),
    ("PrivateTmp", "yes"),
    ("ProtectKernelTunables", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectControlGroups", "yes"),
    ("RestrictNamespaces", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("LockPersonality", "yes"),
    ("MemoryDenyWriteExecute", "yes"),
    ("SystemCallArchitectures", "native"),
    ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX"),
    ("DevicePolicy", "closed"),
    ("StateDirectoryMode", "0700"),
    ("UMask", "0077"),
    ("User", "%i"),
];

/// Directives that would hide data from telemetry.
const NEVER: &[&str] =
    &["ProtectProc", "ProcSubset", "PrivateUsers", "PrivateDevices", "PrivateNetwork", "DynamicUser"];

fn unit() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/headroom.service");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns each directive with its values, in order.
fn directives(unit: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut directives: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
        let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line:?} is not a directive"));
        directives.entry(name).or_default().push(value);
    }
    directives
}

/// Returns the unit's errors.
fn findings(unit: &str, help: &str) -> Vec<String> {
    let directives = directives(unit);
    let mut findings = Vec::new();
    for (name, value) in HARDENED {
        if directives.get(name).is_none_or(|values| values != &[*value]) {
            findings.push(format!("{name} is not {value}"));
        }
    }
    findings.extend(NEVER.iter().filter(|name| directives.contains_key(*name)).map(|name| format!("{name} is there")));
    let mut words = directives.get("ExecStart").and_then(|all| all.first()).map_or("", |line| line).split(' ');
    if words.next() != Some("/usr/local/bin/headroom") || words.next() != Some("serve") {
        findings.push("it does not start `headroom serve`".to_owned());
    }
    let options: BTreeSet<&str> = help.split_whitespace().filter(|word| word.starts_with("--")).collect();
    for option in words.filter(|word| word.starts_with("--")) {
        if !options.contains(option) {
            findings.push(format!("`headroom serve` has no {option}"));
        }
    }
    let folder = directives.get("StateDirectory").and_then(|all| all.first()).map_or("", |folder| folder);
    let variable = format!("HEADROOM_DATA_DIR=/var/lib/{folder}");
    if folder.is_empty() || directives.get("Environment").is_none_or(|all| !all.contains(&&*variable)) {
        findings.push("history is kept elsewhere than where it may be".to_owned());
    }
    findings
}

fn help() -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_headroom")).args(["serve", "--help"]).output().expect("headroom runs");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_unit_is_what_it_says() {
    assert_eq!(findings(&unit(), &help()), [""; 0]);
}

#[test]
fn must_find_what_is_wrong_with_a_unit() {
    let (unit, help) = (unit(), help());
    for (from, to) in [
        ("NoNewPrivileges=yes\n", ""),
        ("ProtectSystem=strict", "ProtectSystem=full"),
        ("ProtectHome=yes", "ProtectHome=yes\nProtectProc=invisible"),
        ("serve --listen", "serve --address"),
        ("bin/headroom serve", "bin/headroom agent"),
        ("StateDirectory=headroom", "StateDirectory=agent"),
    ] {
        let wrong = unit.replacen(from, to, 1);
        assert_ne!(wrong, unit, "{from}");
        assert_eq!(findings(&wrong, &help).len(), 1, "{to}");
    }
}
