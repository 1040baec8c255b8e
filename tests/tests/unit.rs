//! `docs/headroom.service` as systemd reads it. Skipped without systemd.

use headroom_harness::skip;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Maximum exposure in tenths of systemd's scale to 10. systemd 252 gives 1.8. The rest is the network, the GPUs, and
/// other users' processes, whose names are shown.
const EXPOSURE_MAX: &str = "20";

/// Writes the unit for a user to a directory. This program replaces the installed one.
fn unit(folder: &Path, change: impl FnOnce(String) -> String) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/headroom.service");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let program = std::env::current_exe().expect("this program");
    let text = text.replace("/usr/local/bin/headroom", &program.display().to_string()).replace("%i", "daemon");
    let path = folder.join("headroom.service");
    fs::write(&path, change(text)).expect("a file");
    path
}

/// Returns whether systemd accepts the unit, and its output. Returns `None` without systemd.
fn analyzed(words: &[&str], unit: &Path) -> Option<(bool, String)> {
    let output = Command::new("systemd-analyze").args(words).arg(unit).output().ok()?;
    Some((output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()))
}

#[test]
fn systemd_takes_the_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some((good, said)) = analyzed(&["verify"], &unit(folder.path(), |text| text)) else {
        return skip("systemd_takes_the_unit", "systemd-analyze is not on this machine");
    };
    assert!(good && said.trim().is_empty(), "{said}");
    let wrong = unit(folder.path(), |text| text.replace("ProtectSystem=strict", "ProtectSystem=strictly"));
    let (_, said) = analyzed(&["verify"], &wrong).expect("it is there");
    assert!(said.to_lowercase().contains("strictly"), "it reads the file: {said}");
}

#[test]
fn systemd_finds_little_exposed() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = ["security", "--offline=yes", "--threshold", EXPOSURE_MAX];
    let Some((good, said)) = analyzed(&words, &unit(folder.path(), |text| text)) else {
        return skip("systemd_finds_little_exposed", "systemd-analyze is not on this machine");
    };
    if said.contains("unrecognized option") {
        return skip("systemd_finds_little_exposed", "systemd-analyze is older than 250");
    }
    assert!(good && said.contains("exposure level"), "{said}");
    let open = unit(folder.path(), |text| text.replace("SystemCallFilter=", "#").replace("ProtectHome=", "#"));
    assert!(!analyzed(&words, &open).expect("it is there").0, "the threshold is one");
}
