//! Secrets in a config: a token of scope `view` reads a run and downloads a checkpoint without them.

use std::fs;

use serde_json::json;

use super::{MODEL, OwnerData, has_ended, headroom, out};

const SECRET: &str = "s3cr3t";

#[test]
fn view_token_gets_runs_and_checkpoints_without_secrets() {
    let owner = OwnerData::new();
    let config = format!("{MODEL}max_iters = 20\nwandb_run_name = 'password: {SECRET}'\n");
    fs::write(owner.train.path().join("config/named.py"), config).expect("a config");
    let mut add = headroom();
    let added = add.args(["token", "add", "viewer"]).env("HEADROOM_DATA_DIR", owner.history.path()).output();
    let view = String::from_utf8(added.expect("it runs").stdout).expect("text").trim().to_owned();
    let agent = owner.serve();
    let run = agent.order(&json!({ "config": "named.py", "device": "cpu" }));
    agent.comes(&run, "done", has_ended(0));
    let file = fs::read(out(&owner, &run).join("ckpt.safetensors")).expect("a checkpoint");
    let has_secret = |bytes: &[u8]| bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
    assert!(has_secret(&file), "the file keeps the config as given");
    #[cfg(unix)]
    for (name, expected) in [("", 0o700), ("config.py", 0o600), ("ckpt.safetensors", 0o600)] {
        use std::os::unix::fs::PermissionsExt as _;
        let path = out(&owner, &run).join(name);
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, expected, "{}", path.display());
    }

    for path in ["/api/runs".to_owned(), format!("/api/runs/{run}")] {
        let (_, _, shown) = agent.asked_by(&owner.token, "GET", &path, "", "");
        let (_, _, redacted) = agent.asked_by(&view, "GET", &path, "", "");
        assert!(has_secret(&shown), "{path}: scope control reads the config as given");
        assert!(!has_secret(&redacted), "{path}: {}", String::from_utf8_lossy(&redacted));
    }

    let path = format!("/api/runs/{run}/checkpoint");
    let fetch = |token: &str, lines: &str| agent.asked_by(token, "GET", &path, lines, "");
    let etag = |head: &str| head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("a tag").to_owned();
    let (status, whole_head, whole) = fetch(&owner.token, "");
    assert!(status == 200 && whole == file, "control downloads the file itself");
    let (status, head, redacted) = fetch(&view, "");
    assert_eq!(status, 200);
    assert!(!has_secret(&redacted) && redacted.windows(10).any(|window| window == b"[redacted]"));
    assert_ne!(etag(&head), etag(&whole_head), "parts of the two are not mixed");

    // Ranges are those of the redacted form, also across the end of the header and before the checksums.
    let tag = etag(&head);
    let header_bytes = usize::try_from(u64::from_le_bytes(redacted[..8].try_into().expect("a length"))).expect("small");
    for (first, last) in [
        (0, 7),
        (8, 7 + header_bytes),
        (header_bytes, header_bytes + 20),
        (redacted.len() - 30, redacted.len() - 1),
        (0, redacted.len() - 1),
    ] {
        let (status, head, part) = fetch(&view, &format!("Range: bytes={first}-{last}\r\nIf-Match: {tag}\r\n"));
        assert!(status == 206 && part == redacted[first..=last], "{first}-{last}: {head}");
        assert!(head.contains(&format!("content-range: bytes {first}-{last}/{}", redacted.len())), "{head}");
    }
    assert_eq!(fetch(&owner.token, &format!("Range: bytes=0-7\r\nIf-Match: {tag}\r\n")).0, 412);

    // The copy is a checkpoint: its checksums are correct, and it has the model.
    let copies = tempfile::tempdir().expect("a folder");
    let copy = copies.path().join("ckpt.safetensors");
    fs::write(&copy, &redacted).expect("a copy");
    let sample = |checkpoint: &std::path::Path| {
        let mut sample = headroom();
        sample.args(["sample", "--max-new-tokens=20", "--seed=1", "--prompt", "The", "--ckpt"]);
        let output = sample.arg(checkpoint).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    assert_eq!(sample(&copy), sample(&out(&owner, &run)));
}
