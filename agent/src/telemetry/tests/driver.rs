//! A driver that is not there, goes, and comes back, without a restart of ours.

use std::{fs, sync::Arc};

use headroom_fake_nvml::{Scenario, code};
use headroom_shared::protocol::state::DriverState;

use super::{Observed, Rig, back, driver, inventory, lost, ready};
use crate::telemetry::{reader::RETRY, shared::Attached};

fn no_driver(reason: &str) -> DriverState {
    DriverState::NoDriver { reason: reason.to_owned() }
}

#[test]
fn a_driver_that_is_loaded_later_is_found() {
    for (init, reason) in [
        (code::DRIVER_NOT_LOADED, "not loaded"),
        (code::LIB_RM_VERSION_MISMATCH, "restart the machine"),
        (code::NO_PERMISSION, "permission"),
        (code::UNKNOWN, "internal driver error"),
    ] {
        let mut rig = Rig::new(&Scenario { init, ..Scenario::of_cards(1) });
        let told = rig.read();
        let [Observed::Driver(DriverState::NoDriver { reason: said })] = &told[..] else { panic!("{init}: {told:?}") };
        assert!(said.contains(reason), "{init}: {said}");
        assert_eq!(rig.seconds(10), [], "a state is told once");

        rig.play(&Scenario::of_cards(1));
        let told = rig.seconds(RETRY.as_secs());
        assert_eq!(driver(&told), Some(&ready()), "{init}");
        assert_eq!(inventory(&told).map(|gpus| gpus.len()), Some(1));
    }
}

#[test]
fn another_reason_is_another_state() {
    let mut rig = Rig::new(&Scenario { init: code::DRIVER_NOT_LOADED, ..Scenario::default() });
    assert_eq!(driver(&rig.read()), Some(&no_driver("the NVIDIA driver is not loaded")));
    rig.play(&Scenario { init: code::UNKNOWN, ..Scenario::default() });
    assert_eq!(driver(&rig.seconds(2)), Some(&no_driver("an internal driver error occurred")));
}

#[test]
fn a_library_that_is_installed_later_is_found() {
    let mut rig = Rig::new(&Scenario::of_cards(1));
    let (path, away) = (rig.stage.library(), rig.stage.library().with_extension("away"));
    fs::rename(&path, &away).expect("away");
    let told = rig.read();
    let Some(DriverState::NoDriver { reason }) = driver(&told) else { panic!("{told:?}") };
    assert!(reason.contains("cannot be loaded"), "{reason}");
    fs::rename(&away, &path).expect("back");
    assert_eq!(driver(&rig.seconds(2)), Some(&ready()));
}

#[test]
fn a_driver_that_goes_is_gone_with_its_cards_and_comes_back_with_them() {
    for gone in [code::UNINITIALIZED, code::DRIVER_NOT_LOADED, code::LIB_RM_VERSION_MISMATCH] {
        let mut rig = Rig::new(&Scenario::of_cards(2));
        let before = rig.telemetry();
        rig.play(&Scenario { every_call: Some(gone), init: gone, ..Scenario::of_cards(2) });
        let told = rig.read();
        assert!(matches!(driver(&told), Some(DriverState::Gone { .. })), "{gone}: {told:?}");
        assert!(told.ends_with(&[lost(0), lost(1)]), "{told:?}");
        assert!(inventory(&told).is_some_and(|gpus| gpus.iter().all(|gpu| !gpu.present)), "{told:?}");
        assert_eq!(rig.slow().gpus, [], "the machine is told on");
        assert_eq!(rig.seconds(60), [], "it stays gone, and says so once");

        rig.play(&Scenario { driver_version: "590.48.01".to_owned(), ..Scenario::of_cards(2) });
        let told = rig.seconds(2);
        let Some(DriverState::Ready { driver_version, .. }) = driver(&told) else { panic!("{gone}: {told:?}") };
        assert_eq!(driver_version, "590.48.01", "facts are read anew");
        assert!(told.ends_with(&[back(0), back(1)]), "{told:?}");
        let after = rig.telemetry();
        assert_eq!(after.gpus.len(), 2);
        assert!(after.seq > before.seq && after.time_ms > before.time_ms, "{before:?} {after:?}");
        assert_eq!(rig.slow().gpus.len(), 2);
    }
}

#[test]
fn a_driver_that_goes_between_two_moments_is_gone_though_the_count_still_stands() {
    let mut rig = Rig::new(&Scenario::of_cards(1));
    rig.seconds(1);
    // The moment after a look: what tells of the driver is the card's own handle.
    rig.read();
    rig.play(&Scenario { every_call: Some(code::UNINITIALIZED), ..Scenario::of_cards(1) });
    assert!(matches!(driver(&rig.read()), Some(DriverState::Gone { .. })));
}

#[test]
fn a_library_is_not_loaded_anew_while_the_other_thread_reads_by_it() {
    let mut rig = Rig::new(&Scenario::of_cards(1));
    rig.read();
    let reading: Attached = rig.shared.get().expect("a library");
    rig.play(&Scenario { every_call: Some(code::UNINITIALIZED), ..Scenario::of_cards(1) });
    rig.seconds(2);
    rig.play(&Scenario::of_cards(1));
    assert_eq!(rig.seconds(10), [], "a library that is in use would only be found again");
    assert_eq!(Arc::strong_count(&reading.library), 1);
    drop(reading);
    assert_eq!(driver(&rig.seconds(2)), Some(&ready()));
}

#[test]
fn sequence_numbers_have_no_gap_and_times_go_on() {
    let mut rig = Rig::new(&Scenario::of_cards(1));
    let mut last = rig.telemetry();
    for _ in 0..50 {
        let next = rig.telemetry();
        assert_eq!(next.seq, last.seq + 1);
        assert_eq!(next.time_ms, last.time_ms + 100);
        last = next;
    }
}
