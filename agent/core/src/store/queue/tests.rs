//! Tests of the queue.

use headroom_protocol::{alert::Alert, run::RunStatus};

use super::*;

fn telemetry(time_ms: u64) -> Arc<Telemetry> {
    Arc::new(Telemetry { seq: time_ms, time_ms, gpus: vec![] })
}

#[test]
fn telemetry_loses_its_oldest_and_keeps_its_order() {
    let queue = Queue::new();
    let n = TELEMETRY_MAX as u64;
    for time_ms in 0..n + 5 {
        queue.push_telemetry(telemetry(time_ms));
    }
    assert_eq!(queue.dropped(), Dropped { readings: 5, events: 0 });
    let (waiting, next) = queue.telemetry();
    assert_eq!((waiting.len(), waiting[0].read.time_ms), (TELEMETRY_MAX, 5));
    // While these were being written, another moment arrived and displaced the first of them.
    queue.push_telemetry(telemetry(n + 5));
    queue.wrote(WrittenCounts { telemetry: next, ..WrittenCounts::default() });
    let (waiting, _) = queue.telemetry();
    assert_eq!(waiting.iter().map(|waits| waits.read.time_ms).collect::<Vec<_>>(), [n + 5]);
    assert_eq!(queue.recent_after(n + 3).len(), 2);
}

#[test]
fn events_wait_within_a_bound_that_iterations_leave_room_in() {
    let queue = Queue::new();
    let oom = || EventKind::RunOom { message: "x".repeat(1 << 20) };
    for time_ms in 0..100 {
        queue.push_event(time_ms, None, oom());
    }
    let (waiting, next) = queue.events(usize::MAX);
    assert_eq!(waiting.len(), 31, "31 of them and their texts are under {EVENTS_BYTES_MAX} bytes");
    assert_eq!(queue.n_unwritten(), 100);
    assert_eq!(queue.dropped(), Dropped { readings: 0, events: 69 });
    queue.wrote(WrittenCounts { events: next, ..WrittenCounts::default() });
    assert_eq!(queue.n_unwritten(), 69, "those are lost");
    for time_ms in 0..24 {
        queue.push_event(time_ms, None, oom());
    }
    let iteration = r#"{"kind":"run_iteration","iter":1,"loss":null,"time_ms":1.0}"#;
    queue.push_event(0, None, serde_json::from_str(iteration).expect("an iteration"));
    assert_eq!(queue.events(usize::MAX).0.len(), 24, "no room for it");
    queue.push_event(0, None, EventKind::RunDeleted { name: None });
    assert_eq!(queue.events(usize::MAX).0.len(), 25);
}

#[test]
fn full_queue_keeps_events_of_alerts() {
    let queue = Queue::new();
    while queue.dropped().events == 0 {
        queue.push_event(0, None, EventKind::RunOom { message: "x".repeat(1 << 20) });
    }
    while queue.dropped().events == 1 {
        queue.push_event(0, None, EventKind::HistoryResumed);
    }
    let n_before = queue.events(usize::MAX).0.len();
    let gpu = || "GPU-0".to_owned();
    let alert = Alert::GpuLost;
    let kinds = [
        EventKind::GpuLost { gpu: gpu() },
        EventKind::Alert { alert, gpu: Some(gpu()), value: None, status: None },
        EventKind::GpuRecovered { gpu: gpu() },
        EventKind::AlertOver { alert, gpu: Some(gpu()) },
        EventKind::RunStatus { status: RunStatus::Lost, energy_joules: None },
    ];
    let n_kinds = kinds.len();
    kinds.into_iter().for_each(|what| queue.push_event(1, None, what));
    assert_eq!(queue.events(usize::MAX).0.len(), n_before + n_kinds);
    assert_eq!(queue.dropped().events, 2, "only the events that are no alerts");
    queue.wrote(WrittenCounts { events: queue.events(usize::MAX).1, ..WrittenCounts::default() });
    assert_eq!(queue.n_unwritten(), 2, "writing them makes room");
    queue.push_event(2, None, EventKind::HistoryResumed);
    assert_eq!(queue.dropped().events, 2);
}

#[test]
fn an_event_counts_as_reported_once() {
    let queue = Queue::new();
    queue.push_event(1, None, EventKind::HistoryResumed);
    assert_eq!((queue.unreported().len(), queue.unreported().len()), (1, 0));
}
