//! Tests of snapshots: their reader, hostile files, and plans that are written as snapshots.

use super::*;
use crate::{
    nanogpt::Source,
    plan::{Plan, RunOnMachine, plan as plan_run},
    session::{Options, resolve},
};

fn read(bytes: &[u8]) -> Result<Snapshot, ReadError> {
    let mut reader = Reader::default();
    reader.push(bytes)?;
    reader.finish()
}

/// A small run of nanoGPT on a GPU of that memory.
fn planned(vram_bytes: u64, expandable_segments: bool) -> Plan {
    let options = Options {
        vram_bytes: Some(vram_bytes),
        context_bytes: Some(1 << 20),
        expandable_segments,
        ..Options::default()
    };
    let settings = ["--n_layer=2", "--n_head=2", "--n_embd=64", "--block_size=64", "--batch_size=4", "--compile=False"];
    let sources: Vec<_> = settings.iter().map(|text| Source::Override { text: (*text).to_owned() }).collect();
    plan_run(resolve(&sources, &options).request.expect("a run")).expect("a plan")
}

/// Writer of a pickle as C++ writes it: protocol 2, numbered memo entries, no frames.
#[derive(Clone)]
struct Pickle(Vec<u8>);

impl Pickle {
    fn new() -> Self {
        Self(vec![0x80, 2])
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        let length = u32::try_from(text.len()).expect("a short text");
        self.raw(b"X").raw(&length.to_le_bytes()).raw(text.as_bytes())
    }

    fn long(self, number: u64) -> Self {
        self.raw(&[0x8a, 8]).raw(&number.to_le_bytes())
    }

    fn event(self, action: &str, address: u64, bytes: u64) -> Self {
        let key = if action == "oom" { "device_free" } else { "addr" };
        let event = self.raw(b"}(").text("action").text(action).text(key).long(address);
        event.text("size").long(bytes).text("stream").raw(b"K\0u")
    }

    fn root(self, events: &[(&str, u64, u64)]) -> Self {
        let start = self.raw(b"}(").text("segments").raw(b"]").text("device_traces").raw(b"](](");
        let events =
            events.iter().fold(start, |pickle, &(action, address, bytes)| pickle.event(action, address, bytes));
        events.raw(b"eeu.")
    }
}

const SEGMENT: u64 = 0x7f00_0000_0000;
const MIB: u64 = 1 << 20;

#[test]
fn plan_that_is_written_is_read_and_has_its_figures() {
    for expandable_segments in [false, true] {
        let plan = planned(1 << 30, expandable_segments);
        let snapshot = read(&write(&plan)).expect("a snapshot");
        let report = Report::new(&snapshot, 0);
        assert_eq!(report.peak_allocated.allocated_bytes, plan.peak.max_allocated_bytes);
        assert_eq!(report.peak_reserved.reserved_bytes, plan.peak.max_reserved_bytes);
        assert_eq!(report.before.reserved_bytes, 0);
        assert_eq!(snapshot.settings.expandable_segments, expandable_segments);
        assert!(report.check.agrees() && report.check.n_allocations > 100, "{:?}", report.check);
        // The written run replays to the same peak.
        let history = History::new(&snapshot, 0);
        let replay = plan_of(&history, &plan);
        assert_eq!(replay.peak.max_allocated_bytes, plan.peak.max_allocated_bytes);
        assert_eq!(replay.peak.max_reserved_bytes, plan.peak.max_reserved_bytes);
    }
}

fn plan_of(history: &History<'_>, of: &Plan) -> Plan<crate::recording::ReplayRequest> {
    plan(history, of.request.machine().clone()).expect("a program")
}

#[test]
fn failure_of_a_plan_is_the_last_event() {
    let plan = planned(32 << 20, false);
    let oom = plan.oom.as_ref().expect("a failure");
    let snapshot = read(&write(&plan)).expect("a snapshot");
    let report = Report::new(&snapshot, 0);
    let [failure] = report.ooms[..] else { panic!("{} failures", report.ooms.len()) };
    assert_eq!(failure.requested_bytes, oom.requested_bytes);
    assert_eq!(failure.moment.allocated_bytes, oom.allocated_bytes);
    assert_eq!(failure.moment.n_events, report.n_events - 1);
    assert!(failure.device_free_bytes < failure.requested_bytes);
}

#[test]
fn pieces_of_any_size_are_the_same_snapshot() {
    let bytes = write(&planned(1 << 30, false));
    let whole = Report::new(&read(&bytes).expect("a snapshot"), 0).document();
    for n in [1, 2, 3, 7, 1000] {
        let mut reader = Reader::default();
        bytes.chunks(n).for_each(|piece| reader.push(piece).expect("a part of a snapshot"));
        let snapshot = reader.finish().expect("a snapshot");
        assert_eq!(Report::new(&snapshot, 0).document(), whole, "pieces of {n}");
    }
}

#[test]
fn pickle_of_protocol_2_is_read() {
    // A block of 1 MiB more than its tensor, which the allocator does not split.
    let events = [
        ("segment_alloc", SEGMENT, 20 * MIB),
        ("alloc", SEGMENT, 19 * MIB + 100),
        ("free_requested", SEGMENT, 19 * MIB + 100),
        ("free_completed", SEGMENT, 19 * MIB + 100),
        ("segment_free", SEGMENT, 20 * MIB),
        ("oom", 5 * MIB, 30 * MIB),
        ("snapshot", 0, 0),
    ];
    let pickle = Pickle::new().root(&events);
    // Bytes behind the end belong to another pickle.
    let snapshot = read(&pickle.raw(b"more").0).expect("a snapshot");
    assert_eq!((snapshot.n_devices(), snapshot.n_events(0)), (1, 7));
    let report = Report::new(&snapshot, 0);
    assert_eq!(report.peak_allocated.allocated_bytes, 20 * MIB);
    assert_eq!((report.before.reserved_bytes, report.end.reserved_bytes), (0, 0));
    let oom = report.ooms[0];
    assert_eq!((oom.device_free_bytes, oom.requested_bytes, oom.moment.n_events), (5 * MIB, 30 * MIB, 5));
    // A segment of 20 MiB is for requests below 10 MiB; the replica takes 20 MiB for this one too.
    assert_eq!((report.check.n_allocations, report.check.n_segments), (1, 2));
}

#[test]
fn first_difference_of_the_allocator_is_found() {
    let events = |address| [("segment_alloc", SEGMENT, 2 * MIB), ("alloc", SEGMENT, 512), ("alloc", address, 512)];
    let checked = |events: &[_]| {
        let snapshot = read(&Pickle::new().root(&lived(events)).0).expect("a snapshot");
        check(&History::new(&snapshot, 0))
    };
    assert!(checked(&events(SEGMENT + 512)).agrees());
    let difference = checked(&events(SEGMENT + 1024)).difference.expect("a difference");
    assert_eq!((difference.event, difference.kind), (2, DifferenceKind::Address));
    assert_eq!((difference.recorded, difference.replica), (SEGMENT + 1024, SEGMENT + 512));
    let grown = [("segment_alloc", SEGMENT, 4 * MIB), ("alloc", SEGMENT, 512)];
    let difference = checked(&grown).difference.expect("a difference");
    assert_eq!((difference.event, difference.kind), (1, DifferenceKind::Reserved));
    assert_eq!((difference.recorded, difference.replica), (4 * MIB, 2 * MIB));
}

/// The events, and those that end the blocks and the segment, because the snapshot has no segments.
fn lived<'a>(events: &[(&'a str, u64, u64)]) -> Vec<(&'a str, u64, u64)> {
    let mut all = events.to_vec();
    let blocks = events.iter().filter(|(action, ..)| *action == "alloc");
    all.extend(blocks.map(|&(_, address, bytes)| ("free_completed", address, bytes)));
    all.push(("segment_free", events[0].1, events[0].2));
    all
}

#[test]
fn a_cut_file_is_refused_at_every_length() {
    let bytes = Pickle::new().root(&lived(&[("segment_alloc", SEGMENT, 2 * MIB), ("alloc", SEGMENT, 4)])).0;
    assert!(read(&bytes).is_ok());
    assert_eq!(read(&[]).map(|_| ()), Err(ReadError { offset: 0, problem: Problem::NotAPickle }));
    for n in 2..bytes.len() {
        let error = read(&bytes[..n]).map(|_| ()).expect_err("a part of a snapshot");
        assert_eq!(error.problem, Problem::Cut, "{n} bytes");
        assert!(error.offset <= n as u64);
    }
}

#[test]
fn hostile_files_are_refused_with_their_offset() {
    let refused = |bytes: &[u8]| {
        let error = read(bytes).map(|_| ()).expect_err("an invalid file");
        (error.offset, error.problem)
    };
    let start = Pickle::new();
    assert_eq!(refused(b"PK\x03\x04"), (0, Problem::NotAPickle));
    assert_eq!(refused(b"\x80\x06}."), (0, Problem::NotAPickle));
    assert_eq!(refused(&start.clone().raw(b"}.").0), (4, Problem::NotASnapshot));
    assert_eq!(refused(&start.clone().raw(b"P1\n.").0), (2, Problem::Opcode(b'P')));
    assert_eq!(refused(&start.clone().raw(b"h\0.").0), (2, Problem::Memo));
    assert_eq!(refused(&start.clone().raw(b"}r\xff\xff\xff\x7f").0), (3, Problem::Memo));
    assert_eq!(refused(&start.clone().raw(b"s").0), (2, Problem::Stack));
    assert_eq!(refused(&start.clone().raw(b"}(K\x01u").0), (6, Problem::Stack));
    assert_eq!(refused(&start.clone().raw(b"X\x01\0\0\0\xff").0), (2, Problem::Text));
    assert_eq!(refused(&start.clone().root(&[("alloc", u64::MAX, 4)]).0).1, Problem::Number);
    assert_eq!(refused(&start.clone().root(&[("alloc", SEGMENT, 1 << 51)]).0).1, Problem::Number);
    let without_size = start.clone().raw(b"}(").text("action").text("alloc").raw(b"u");
    assert_eq!(refused(&without_size.0).1, Problem::Incomplete);
    assert_eq!(refused(&[start.0, vec![b'('; 2000]].concat()).1, Problem::TooMany);
}

#[test]
fn values_of_later_versions_are_skipped() {
    // A call, bytes, a set, a long text and a large integer under unknown keys.
    let strange = Pickle::new().raw(b"}(").text("a").raw(b"cos\nsystem\n").raw(b"(").text("x").raw(b"tR");
    let strange = strange.text("b").raw(b"B\x03\0\0\0abc").text("c").raw(&[0x8f]);
    let strange = strange.text("d").text(&"x".repeat(100_000)).text("e").raw(&[0x8a, 9]).raw(&[0xff; 9]);
    let strange = strange.text("segments").raw(b"]").text("device_traces").raw(b"](]eu.");
    for n in [1, 1000, usize::MAX] {
        let mut reader = Reader::default();
        strange.0.chunks(n).for_each(|piece| reader.push(piece).expect("a part of a snapshot"));
        let snapshot = reader.finish().expect("a snapshot");
        assert_eq!((snapshot.n_devices(), snapshot.n_events(0)), (1, 0));
    }
}

#[test]
fn changed_bytes_are_refused_or_reported() {
    let events = [
        ("segment_alloc", SEGMENT, 20 * MIB),
        ("alloc", SEGMENT, 2 * MIB),
        ("alloc", SEGMENT + 2 * MIB, 3 * MIB),
        ("free_completed", SEGMENT, 2 * MIB),
        ("oom", MIB, 30 * MIB),
    ];
    let bytes = Pickle::new().root(&lived(&events)).0;
    let machine = Options::default().machine().expect("a GPU");
    let mut reported = 0;
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at] ^ 4, bytes[at] ^ 0x20] {
            let mut changed = bytes.clone();
            changed[at] = value;
            let Ok(snapshot) = read(&changed) else { continue };
            let report = Report::new(&snapshot, 0);
            assert!(report.n_events <= bytes.len());
            let history = History::new(&snapshot, 0);
            assert!(plan(&history, machine.clone()).is_ok());
            reported += 1;
        }
    }
    assert!(reported > 100, "{reported}");
}

#[test]
fn sizes_are_rounded_to_divisions_of_powers_of_two() {
    let mut settings = AllocatorSettings::default();
    assert_eq!([1, 512, 513, 3 * MIB + 1].map(|bytes| settings.rounded(bytes)), [512, 512, 1024, 3 * MIB + 512]);
    settings.divisions = [4; settings::N_DIVISIONS];
    // c10's own example: 1200 with four divisions of 1024 to 2048 is 1280, but these sizes are too small for it.
    assert_eq!(settings.rounded(1200), 1536);
    assert_eq!([4 * MIB, 4 * MIB + 1, 5 * MIB + 1].map(|bytes| settings.rounded(bytes)), [4 * MIB, 5 * MIB, 6 * MIB]);
}

#[test]
fn frames_of_the_user_are_told_from_those_of_packages() {
    let is_user = |filename| Frame { name: "f", filename, line: 1 }.is_user();
    assert!(["train.py", "/home/me/nanogpt/model.py", "<ipython-input-1>"].into_iter().all(is_user));
    let others = [
        "/usr/lib/python3.12/site-packages/torch/nn/modules/linear.py",
        "site-packages/transformers/trainer.py",
        "/usr/lib/python3.12/runpy.py",
        "/build/pytorch/torch/csrc/autograd/engine.cpp",
        "??",
    ];
    assert!(!others.into_iter().any(is_user));
}
