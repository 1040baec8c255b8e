//! Fuzzes recordings: any bytes are a recording or an error with an offset, and a recording replays on every GPU.
#![no_main]

use headroom_planner::{
    memory::{allocator::SegmentKind, simulate::simulate},
    recording::{Decoder, plan},
    session::Options,
};
use libfuzzer_sys::fuzz_target;

/// Events that a target still replays.
const MAX_EVENTS: usize = 20_000;

fuzz_target!(|data: &[u8]| {
    // The first byte is the length of the pieces.
    let Some((&length, data)) = data.split_first() else { return };
    let mut decoder = Decoder::default();
    for piece in data.chunks(usize::from(length).max(1)) {
        if let Err(error) = decoder.push(piece) {
            assert!(error.offset <= data.len() as u64, "{error}");
            return;
        }
    }
    let recording = match decoder.finish() {
        Ok(recording) => recording,
        Err(error) => {
            assert!(error.offset <= data.len() as u64, "{error}");
            return;
        }
    };
    assert!(recording.n_events() <= data.len());
    if recording.n_events() > MAX_EVENTS {
        return;
    }
    if let Some(series) = recording.series() {
        let variable = series.variable;
        for size in [1, 7, 4096] {
            if let Ok(run) = recording.at(variable, size) {
                assert_eq!(run.size(), Some(size));
            }
        }
    }
    for gpu in ["RTX 4070", "H200", "GTX 1080"] {
        let options = Options { gpu: gpu.to_owned(), ..Options::default() };
        let machine = options.machine().expect("a GPU");
        let Ok(program) = recording.program(machine.gpu()) else { return };
        let expandable = simulate(&program, SegmentKind::Expandable, machine.capacity_bytes());
        assert!(expandable.max_allocated_bytes <= expandable.max_reserved_bytes);
        let plan = plan(&recording, machine).expect("a program");
        assert_eq!(plan.fits, plan.oom.is_none());
        let live: u64 = plan.largest_at_peak().iter().map(|group| group.bytes).sum();
        assert_eq!(live, plan.peak.live_bytes);
    }
});
