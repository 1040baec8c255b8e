//! A driver that is missing, goes, and comes back, without a restart of the agent.

use std::{fs, sync::Arc};

use headroom_fake_nvml::{Scenario, code};
use headroom_protocol::{message::Message, state::DriverState};
use headroom_text as text;

use super::{Rig, TelemetryEvent, back, driver, inventory, lost, ready};
use crate::telemetry::{reader::RETRY, shared::AttachedGpus};

fn no_driver(reason: Message) -> DriverState {
    DriverState::NoDriver { reason }
}

#[test]
fn a_driver_that_is_loaded_later_is_found() {
    for (init, reason) in [
        (code::DRIVER_NOT_LOADED, "not loaded"),
        (code::LIB_RM_VERSION_MISMATCH, "restart the machine"),
        (code::NO_PERMISSION, "permission"),
        (code::UNKNOWN, "internal driver error"),
    ] {
        let mut rig = Rig::new(&Scenario { init, ..Scenario::of_gpus(1) });
        let events = rig.read();
        let [TelemetryEvent::Driver(DriverState::NoDriver { reason: said })] = &events[..] else {
            panic!("{init}: {events:?}")
        };
        assert!(said.en.contains(reason), "{init}: {said}");
        assert_eq!(rig.seconds(10), [], "a state is reported once");

        rig.play(&Scenario::of_gpus(1));
        let events = rig.seconds(RETRY.as_secs());
        assert_eq!(driver(&events), Some(&ready()), "{init}");
        assert_eq!(inventory(&events).map(|gpus| gpus.len()), Some(1));
    }
}

#[test]
fn another_reason_is_another_state() {
    let mut rig = Rig::new(&Scenario { init: code::DRIVER_NOT_LOADED, ..Scenario::default() });
    assert_eq!(driver(&rig.read()), Some(&no_driver(text::DRIVER_NOT_LOADED.into())));
    rig.play(&Scenario { init: code::UNKNOWN, ..Scenario::default() });
    assert_eq!(driver(&rig.seconds(2)), Some(&no_driver(Message::plain("an internal driver error occurred"))));
}

#[test]
fn a_library_that_is_installed_later_is_found() {
    let mut rig = Rig::new(&Scenario::of_gpus(1));
    let (path, away) = (rig.stage.library(), rig.stage.library().with_extension("away"));
    fs::rename(&path, &away).expect("away");
    let events = rig.read();
    let Some(DriverState::NoDriver { reason }) = driver(&events) else { panic!("{events:?}") };
    assert!(reason.en.contains("cannot load the library"), "{reason}");
    fs::rename(&away, &path).expect("back");
    assert_eq!(driver(&rig.seconds(2)), Some(&ready()));
}

#[test]
fn unloaded_driver_loses_and_restores_its_gpus() {
    for gone in [code::UNINITIALIZED, code::DRIVER_NOT_LOADED, code::LIB_RM_VERSION_MISMATCH] {
        let mut rig = Rig::new(&Scenario::of_gpus(2));
        let before = rig.telemetry();
        rig.play(&Scenario { every_call: Some(gone), init: gone, ..Scenario::of_gpus(2) });
        let events = rig.read();
        assert!(matches!(driver(&events), Some(DriverState::Gone { .. })), "{gone}: {events:?}");
        assert!(events.ends_with(&[lost(0), lost(1)]), "{events:?}");
        assert!(inventory(&events).is_some_and(|gpus| gpus.iter().all(|gpu| !gpu.present)), "{events:?}");
        assert_eq!(rig.slow().gpus, [], "the machine's readings are reported");
        assert_eq!(rig.seconds(60), [], "it stays missing and is reported once");

        rig.play(&Scenario { driver_version: "590.48.01".to_owned(), ..Scenario::of_gpus(2) });
        let events = rig.seconds(2);
        let Some(DriverState::Ready { driver_version, .. }) = driver(&events) else { panic!("{gone}: {events:?}") };
        assert_eq!(driver_version, "590.48.01", "facts are read again");
        assert!(events.ends_with(&[back(0), back(1)]), "{events:?}");
        let after = rig.telemetry();
        assert_eq!(after.gpus.len(), 2);
        assert!(after.seq > before.seq && after.time_ms > before.time_ms, "{before:?} {after:?}");
        assert_eq!(rig.slow().gpus.len(), 2);
    }
}

#[test]
fn driver_unloaded_between_reads_is_gone() {
    let mut rig = Rig::new(&Scenario::of_gpus(1));
    rig.seconds(1);
    // The moment after a scan, so that the error comes from the GPU's cached handle.
    rig.read();
    rig.play(&Scenario { every_call: Some(code::UNINITIALIZED), ..Scenario::of_gpus(1) });
    assert!(matches!(driver(&rig.read()), Some(DriverState::Gone { .. })));
}

#[test]
fn library_is_not_reloaded_during_a_read() {
    let mut rig = Rig::new(&Scenario::of_gpus(1));
    rig.read();
    let reading: AttachedGpus = rig.shared.get().expect("a library");
    rig.play(&Scenario { every_call: Some(code::UNINITIALIZED), ..Scenario::of_gpus(1) });
    rig.seconds(2);
    rig.play(&Scenario::of_gpus(1));
    assert_eq!(rig.seconds(10), [], "a loaded library is not loaded again");
    assert_eq!(Arc::strong_count(&reading.library), 1);
    drop(reading);
    assert_eq!(driver(&rig.seconds(2)), Some(&ready()));
}

#[test]
fn sequence_numbers_have_no_gap_and_times_go_on() {
    let mut rig = Rig::new(&Scenario::of_gpus(1));
    let mut last = rig.telemetry();
    for _ in 0..50 {
        let next = rig.telemetry();
        assert_eq!(next.seq, last.seq + 1);
        assert_eq!(next.time_ms, last.time_ms + 100);
        last = next;
    }
}
