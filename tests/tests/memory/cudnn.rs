//! Comparison of the planned workspace for cuDNN's attention with the library's requests in tests/golden/cudnn.

use std::fs;

use headroom_planner::gpt::buffers::cuda::AttentionBackend;
use serde::Deserialize;

use crate::records::golden;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(rename = "card")]
    gpu: String,
    capability: u32,
    b: u64,
    nh: u64,
    t: u64,
    hs: u64,
    forward_bytes: Option<u64>,
    backward_bytes: Option<u64>,
}

fn lines() -> Vec<Line> {
    let files = fs::read_dir(golden("cudnn")).expect("a folder").map(|entry| entry.expect("a file").path());
    let texts = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let texts: Vec<String> = texts.map(|path| fs::read_to_string(path).expect("it is text")).collect();
    texts.iter().flat_map(|text| text.lines()).map(|line| serde_json::from_str(line).expect("a line")).collect()
}

/// Whether the planned workspace suffices for a line and is not much too large.
fn holds(line: &Line, backward_bytes: u64) -> bool {
    let forward_bytes = AttentionBackend::Cudnn.forward_bytes();
    let tile = |bytes: u64| bytes * line.t.next_multiple_of(128).pow(2) / line.t.next_multiple_of(64).pow(2);
    line.forward_bytes.is_some_and(|asked| asked <= forward_bytes)
        && line
            .backward_bytes
            .is_some_and(|asked| asked <= backward_bytes && backward_bytes <= tile(asked) + (64 << 10))
}

#[test]
fn planned_workspace_suffices_for_every_gpu() {
    let lines = lines();
    assert!(lines.len() >= 60);
    for line in &lines {
        // Lines are groups of sequences that the planner does not split.
        assert_eq!(AttentionBackend::Cudnn.cudnn_sequences(line.b, line.nh, line.t), Some(line.b), "{line:?}");
        assert!(holds(line, AttentionBackend::Cudnn.backward_bytes(line.b, line.nh, line.t)), "{line:?}");
    }
    for capability in [80, 86, 89, 90, 100, 120] {
        assert!(lines.iter().any(|line| line.capability == capability && line.hs == 64 && !line.gpu.is_empty()));
    }
}

/// Negative control: detects a workspace that is too small or far too large.
#[test]
fn another_room_does_not_hold() {
    let line = &lines()[0];
    let room = AttentionBackend::Cudnn.backward_bytes(line.b, line.nh, line.t);
    assert!(holds(line, room) && !holds(line, room / 2) && !holds(line, room * 2));
}
