//! Both threads, on the machine's own clock.

use std::{sync::mpsc, time::Duration};

use headroom_fake_nvml::{Scenario, Stage};

use crate::telemetry::{Options, TelemetryEvent, start};

/// Longer than any machine needs; passing tests never wait for it.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn both_threads_tell_and_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = Stage::new(folder.path(), &[], &Scenario::of_gpus(1)).expect("a stage");
    let options = Options { library: Some(stage.library()), disk_folder: folder.path().to_owned() };
    let (tell, events) = mpsc::channel();
    let sampler = start(options, move |observed| drop(tell.send(observed))).expect("threads");
    let mut n_telemetry = 0;
    let mut n_slow = 0;
    while n_telemetry < 3 || n_slow < 1 {
        match events.recv_timeout(PATIENCE).expect("both report") {
            TelemetryEvent::Telemetry(_) => n_telemetry += 1,
            TelemetryEvent::Slow(_) => n_slow += 1,
            _ => {}
        }
    }
    drop(sampler);
    while events.recv_timeout(PATIENCE) != Err(mpsc::RecvTimeoutError::Disconnected) {}
}

#[test]
fn a_driver_that_hangs_delays_no_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let hangs = ["nvmlShutdown", "nvmlDeviceGetPcieThroughput"].map(|symbol| (symbol.to_owned(), 3_600_000));
    let scenario = Scenario { slow_ms: hangs.into_iter().collect(), ..Scenario::of_gpus(1) };
    let stage = Stage::new(folder.path(), &[], &scenario).expect("a stage");
    let options = Options { library: Some(stage.library()), disk_folder: folder.path().to_owned() };
    let (tell, events) = mpsc::channel();
    let mut sampler = start(options, move |observed| drop(tell.send(observed))).expect("threads");
    sampler.end_max = Duration::from_millis(10);
    let mut telemetry = (0..1000).map(|_| events.recv_timeout(PATIENCE).expect("the fast thread reports"));
    assert_eq!(telemetry.by_ref().filter(|event| matches!(event, TelemetryEvent::Telemetry(_))).take(5).count(), 5);
    // The calls hang for an hour unless the test ends them.
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        drop(sampler);
        ended.send(())
    });
    end.recv_timeout(PATIENCE).expect("shutdown does not wait for a call");
}
