//! Figures of settings that follow from the source of c10.

use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn default_settings_leave_every_request() {
    let settings = AllocConf::default().on_gpu(Some(1 << 34));
    for bytes in [512, 1 << 20, (1 << 20) + 512, 37 * MIB + 512] {
        assert_eq!(settings.round(bytes), bytes);
        assert_eq!(settings.segment_bytes(bytes), super::super::segment_bytes(bytes));
    }
    assert!(AllocConf::default().is_default_but_for_segments());
}

/// The example of c10's `roundup_power2_next_division`, in MiB instead of bytes.
#[test]
fn requests_round_to_divisions_of_the_power_of_two_below() {
    let conf: AllocConf = "roundup_power2_divisions:4".parse().expect("settings");
    let settings = conf.on_gpu(None);
    assert_eq!(settings.round(1200 * MIB), 1280 * MIB);
    assert_eq!(settings.round(1024 * MIB), 1024 * MIB);
    // Requests up to 512 bytes times the divisions keep multiples of 512.
    assert_eq!(settings.round(2048), 2048);
}

#[test]
fn collection_needs_a_memory_fraction() {
    let collects = |text: &str| text.parse::<AllocConf>().expect("settings").on_gpu(Some(1 << 30)).collection_bytes();
    assert_eq!(collects("garbage_collection_threshold:0.5"), None);
    assert_eq!(collects("garbage_collection_threshold:0.5,per_process_memory_fraction:0.5"), Some(1 << 28));
}
