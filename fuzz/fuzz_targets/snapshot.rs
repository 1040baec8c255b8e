//! Fuzzes memory snapshots of PyTorch: any bytes are a snapshot or an error with an offset, and a snapshot has a report
//! and replays on every GPU.
#![no_main]

use headroom_planner::{
    session::Options,
    snapshot::{History, Reader, Report, plan},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // The first byte is the length of the pieces.
    let Some((&length, data)) = data.split_first() else { return };
    let mut reader = Reader::default();
    for piece in data.chunks(usize::from(length).max(1)) {
        if let Err(error) = reader.push(piece) {
            assert!(error.offset <= data.len() as u64, "{error}");
            return;
        }
    }
    let snapshot = match reader.finish() {
        Ok(snapshot) => snapshot,
        Err(error) => {
            assert!(error.offset <= data.len() as u64, "{error}");
            return;
        }
    };
    let device = snapshot.main_device();
    assert!(snapshot.n_events(device) <= data.len());
    let report = Report::new(&snapshot, device);
    assert!(report.peak_allocated.allocated_bytes >= report.before.allocated_bytes);
    assert!(report.peak_reserved.reserved_bytes >= report.end.reserved_bytes);
    for expandable_segments in [false, true] {
        let options = Options { expandable_segments, ..Options::default() };
        let history = History::new(&snapshot, device);
        // The sum of all sizes may exceed every GPU.
        let Ok(plan) = plan(&history, options.machine().expect("a GPU")) else { return };
        assert_eq!(plan.fits, plan.oom.is_none());
    }
});
