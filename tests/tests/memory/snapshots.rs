//! Memory snapshots of an H200: what their reader finds, and their allocator against the replica.

use std::{fs::File, io::Read as _};

use flate2::read::GzDecoder;
use headroom_planner::{
    recording::{Decoder, plan},
    session::Options,
    snapshot::{Reader, Report, Snapshot, write},
};

use crate::records::golden;

fn pickle(name: &str) -> Vec<u8> {
    let file = File::open(golden(&format!("snapshots/{name}.pickle.gz"))).expect("the snapshot is there");
    let mut bytes = Vec::new();
    GzDecoder::new(file).read_to_end(&mut bytes).expect("a whole file");
    bytes
}

fn read(bytes: &[u8]) -> Snapshot {
    let mut reader = Reader::default();
    // Pieces of a length that divides no frame of the pickle.
    bytes.chunks(997).for_each(|piece| reader.push(piece).expect("a part of a snapshot"));
    reader.finish().expect("a snapshot")
}

/// Snapshots with the numbers of their events, which their README lists.
const SNAPSHOTS: [(&str, usize); 5] = [
    ("nanogpt_eager", 992),
    ("nanogpt_oom", 1_103),
    ("nanogpt_compile", 3_111),
    ("nanochat_eager", 21_891),
    ("smollm2_lora", 38_367),
];

#[test]
fn replica_agrees_with_every_event_of_an_h200() {
    for (name, n_events) in SNAPSHOTS {
        let snapshot = read(&pickle(name));
        let report = Report::new(&snapshot, snapshot.main_device());
        println!("{name}: {} blocks and {} segments agree", report.check.n_allocations, report.check.n_segments);
        assert_eq!(report.n_events, n_events, "{name}");
        assert_eq!(report.n_contradictions, 0, "{name}");
        assert!(report.check.agrees(), "{name}: {:?}", report.check);
        assert!(report.check.n_allocations * 4 > n_events as u64, "{name}: {:?}", report.check);
    }
}

#[test]
fn peaks_are_the_counters_of_the_run() {
    // The last of the file's marks: `max_memory_allocated` and `max_memory_reserved` at the end of the run.
    let snapshot = read(&pickle("nanogpt_compile"));
    let report = Report::new(&snapshot, 0);
    assert_eq!(report.peak_allocated.allocated_bytes, 2_386_034_176);
    assert_eq!(report.peak_reserved.reserved_bytes, 2_573_205_504);
}

#[test]
fn failed_request_has_its_place_and_its_memory() {
    let snapshot = read(&pickle("nanogpt_oom"));
    let report = Report::new(&snapshot, 0);
    let [oom] = report.ooms[..] else { panic!("{} failures", report.ooms.len()) };
    // 25,165,824 bytes more than these exceed the limit of 6 GiB.
    assert_eq!(oom.requested_bytes, 24 << 20);
    assert!(oom.moment.reserved_bytes <= 6 << 30 && oom.moment.reserved_bytes + oom.requested_bytes > 6 << 30);
    assert!(oom.moment.free.largest_bytes < oom.requested_bytes);
    let place = snapshot.user_frame(oom.stack).expect("a stack").place();
    assert_eq!(place, "model.py:186 forward");
}

#[test]
fn must_find_a_block_at_another_address() {
    // Moves the last block by 512 bytes: the address is the only integer of its value that occurs once as an event.
    let bytes = pickle("nanogpt_eager");
    let snapshot = read(&bytes);
    let last = snapshot
        .events(0)
        .rfind(|event| event.action == headroom_planner::snapshot::TraceAction::Alloc)
        .expect("an allocation")
        .address;
    let (from, to) = (last.to_le_bytes(), (last + 512).to_le_bytes());
    let mut falsified = bytes.clone();
    for at in 0..bytes.len() - 6 {
        if bytes[at..at + 6] == from[..6] {
            falsified[at..at + 6].copy_from_slice(&to[..6]);
        }
    }
    let snapshot = read(&falsified);
    let report = Report::new(&snapshot, 0);
    assert!(!report.check.agrees() || report.n_contradictions > 0, "{:?}", report.check);
}

#[test]
fn written_recording_has_its_source_lines_and_its_peaks() {
    let file = std::fs::read(golden("recordings/nanogpt_124m.headroom")).expect("the recording is there");
    let mut decoder = Decoder::default();
    decoder.push(&file).expect("a part of a recording");
    let recording = decoder.finish().expect("a recording");
    let machine = Options { gpu: "RTX 4090".to_owned(), ..Options::default() }.machine().expect("a GPU");
    let plan = plan(&recording, machine).expect("a program");
    let snapshot = read(&write(&plan));
    let report = Report::new(&snapshot, 0);
    assert_eq!(report.peak_allocated.allocated_bytes, plan.peak.max_allocated_bytes);
    assert_eq!(report.peak_reserved.reserved_bytes, plan.peak.max_reserved_bytes);
    let places: Vec<String> = report.sites.iter().filter_map(|site| site.user).map(|frame| frame.place()).collect();
    let sources: Vec<String> =
        plan.largest_at_peak().iter().map(|group| group.tensor.stored.source().to_owned()).collect();
    for source in sources.iter().filter(|source| !source.is_empty()) {
        assert!(places.contains(source), "{source} is not in {places:?}");
    }
    assert!(sources.iter().any(|source| source.starts_with("model.py:")), "{sources:?}");
}
