//! Every reading, and every reason why one is missing.

use headroom_fake_nvml::{Card, Course, Process, Scenario, code};
use headroom_shared::protocol::{
    gpu::{Gpu, Sample, SlowSample},
    reading::{Reading, Why},
};

use super::{Rig, uuid};

const GIB: u64 = 1 << 30;

fn one(card: Card) -> Scenario {
    Scenario { cards: vec![card], time_s: Some(1.0), ..Scenario::default() }
}

fn missing<T>(why: Why) -> Reading<T> {
    Reading::missing(why)
}

#[test]
fn a_whole_card_is_read_with_its_units() {
    let mut rig = Rig::new(&one(Card { ecc: (3, 1), nvlinks: (2, 6), ..Card::numbered(0) }));
    let told = rig.gpus();
    let expected = Gpu {
        index: 0,
        uuid: uuid(0),
        name: "NVIDIA GeForce RTX 4070".to_owned(),
        present: true,
        memory_total_bytes: Reading::Is(12 * GIB),
        compute_capability: Reading::Is((8, 9)),
        power_limit_watts: Reading::Is(200.0),
        power_limit_max_watts: Reading::Is(215.0),
        temperature_slowdown_celsius: Reading::Is(95),
        temperature_shutdown_celsius: Reading::Is(98),
        clock_sm_max_mhz: Reading::Is(3105),
        clock_memory_max_mhz: Reading::Is(10_501),
        mig_enabled: Reading::Is(false),
        nvlinks_active: Reading::Is(2),
        pci_bus_id: Reading::Is("0000:01:00.0".to_owned()),
        listed_as: Some("GeForce RTX 4070".to_owned()),
    };
    assert_eq!(told, [expected]);
    let expected = Sample {
        gpu: 0,
        memory_used_bytes: Reading::Is(7 * GIB),
        memory_free_bytes: Reading::Is(5 * GIB - (300 << 20)),
        memory_reserved_bytes: Reading::Is(300 << 20),
        utilization_percent: Reading::Is(97),
        memory_utilization_percent: Reading::Is(42),
        power_watts: Reading::Is(199.5),
        clock_sm_mhz: Reading::Is(2475),
        clock_memory_mhz: Reading::Is(10_501),
        temperature_celsius: Reading::Is(61),
        throttle: Reading::Is(4),
    };
    assert_eq!(rig.sample(), expected);
    let expected = SlowSample {
        gpu: 0,
        fan_percent: Reading::Is(38),
        energy_joules: Reading::Is(1199.5),
        pcie_receive_bytes_per_second: Reading::Is(12_000_000),
        pcie_send_bytes_per_second: Reading::Is(3_000_000),
        pcie_link: Reading::Is((4, 16)),
        ecc_corrected: Reading::Is(3),
        ecc_uncorrected: Reading::Is(1),
        processes: Reading::Is(vec![]),
    };
    assert_eq!(rig.slow_sample(), expected);
}

#[test]
fn what_no_card_can_have_is_missing() {
    let stays = Course::Stays;
    let absurd = Card {
        memory_total_bytes: u64::MAX,
        memory_reserved_bytes: u64::MAX,
        memory_used_bytes: stays(1.8e19),
        utilization_percent: stays(5000.0),
        memory_utilization_percent: stays(4e9),
        power_watts: stays(4e6),
        energy_joules: stays(1e16),
        temperature_celsius: stays(1e9),
        clock_sm_mhz: stays(4e9),
        clock_memory_mhz: stays(1e6),
        fan_percent: stays(4e9),
        ecc: (u64::MAX, 1 << 60),
        processes: vec![Process { pid: 1, memory_used_bytes: Some(1 << 60), ..Process::default() }],
        ..Card::numbered(0)
    };
    let mut rig = Rig::new(&one(absurd));
    let gpu = rig.gpus().remove(0);
    assert_eq!(gpu.memory_total_bytes, missing(Why::Implausible));
    let Sample { memory_used_bytes, memory_free_bytes, memory_reserved_bytes, power_watts, throttle, .. } =
        rig.sample();
    assert_eq!(
        [memory_used_bytes, memory_free_bytes, memory_reserved_bytes],
        [(); 3].map(|()| missing(Why::Implausible))
    );
    assert_eq!((power_watts, throttle), (missing(Why::Implausible), Reading::Is(4)));
    let Sample {
        utilization_percent,
        memory_utilization_percent,
        clock_sm_mhz,
        clock_memory_mhz,
        temperature_celsius,
        ..
    } = rig.sample();
    let rest = [utilization_percent, memory_utilization_percent, clock_sm_mhz, clock_memory_mhz, temperature_celsius];
    assert_eq!(rest, [(); 5].map(|()| missing(Why::Implausible)));
    let slow = rig.slow_sample();
    assert_eq!(
        [slow.fan_percent, slow.ecc_corrected, slow.ecc_uncorrected],
        [(); 3].map(|()| missing(Why::Implausible))
    );
    assert_eq!(slow.energy_joules, missing(Why::Implausible));
    let processes = slow.processes.get().expect("processes");
    assert_eq!(processes[0].memory_used_bytes, missing(Why::Implausible));
    // The most that is plausible is a reading.
    let most = Card {
        utilization_percent: stays(100.0),
        temperature_celsius: stays(110.0),
        fan_percent: stays(105.0),
        ..Card::numbered(0)
    };
    let mut rig = Rig::new(&one(most));
    let sample = rig.sample();
    assert_eq!((sample.utilization_percent, sample.temperature_celsius), (Reading::Is(100), Reading::Is(110)));
    assert_eq!(rig.slow_sample().fan_percent, Reading::Is(105));
}

#[test]
fn values_follow_the_scenario() {
    let course = Course::Goes(vec![(0.0, 50.0), (10.0, 90.0)]);
    let at = |time_s| {
        let card = Card { temperature_celsius: course.clone(), ..Card::default() };
        Scenario { time_s: Some(time_s), ..one(card) }
    };
    let mut rig = Rig::new(&at(0.0));
    for (time_s, celsius) in [(0.0, 50), (5.0, 70), (10.0, 90), (60.0, 90)] {
        rig.play(&at(time_s));
        rig.seconds(1);
        assert_eq!(rig.sample().temperature_celsius, Reading::Is(celsius), "{time_s} s");
    }
}

/// Reads why something is missing of everything that is told of a card.
fn whys(rig: &mut Rig) -> Vec<(&'static str, Why)> {
    let gpu = rig.gpus().remove(0);
    let sample = rig.sample();
    let slow = rig.slow_sample();
    let all = [
        ("total", gpu.memory_total_bytes.why()),
        ("capability", gpu.compute_capability.why()),
        ("limit", gpu.power_limit_watts.why()),
        ("limit_max", gpu.power_limit_max_watts.why()),
        ("slowdown", gpu.temperature_slowdown_celsius.why()),
        ("shutdown", gpu.temperature_shutdown_celsius.why()),
        ("sm_max", gpu.clock_sm_max_mhz.why()),
        ("memory_max", gpu.clock_memory_max_mhz.why()),
        ("mig", gpu.mig_enabled.why()),
        ("nvlinks", gpu.nvlinks_active.why()),
        ("pci", gpu.pci_bus_id.why()),
        ("used", sample.memory_used_bytes.why()),
        ("free", sample.memory_free_bytes.why()),
        ("reserved", sample.memory_reserved_bytes.why()),
        ("utilization", sample.utilization_percent.why()),
        ("memory_utilization", sample.memory_utilization_percent.why()),
        ("power", sample.power_watts.why()),
        ("sm", sample.clock_sm_mhz.why()),
        ("memory", sample.clock_memory_mhz.why()),
        ("temperature", sample.temperature_celsius.why()),
        ("throttle", sample.throttle.why()),
        ("fan", slow.fan_percent.why()),
        ("energy", slow.energy_joules.why()),
        ("receive", slow.pcie_receive_bytes_per_second.why()),
        ("send", slow.pcie_send_bytes_per_second.why()),
        ("link", slow.pcie_link.why()),
        ("ecc_corrected", slow.ecc_corrected.why()),
        ("ecc_uncorrected", slow.ecc_uncorrected.why()),
        ("processes", slow.processes.why()),
    ];
    all.into_iter().filter_map(|(name, why)| Some((name, why?))).collect()
}

/// Each symbol, and the readings that are missing without it. No memory before driver 510 is its own case.
const SYMBOLS: &[(&str, &[&str])] = &[
    ("nvmlDeviceGetUtilizationRates", &["utilization", "memory_utilization"]),
    ("nvmlDeviceGetPowerUsage", &["power"]),
    ("nvmlDeviceGetClockInfo", &["sm", "memory"]),
    ("nvmlDeviceGetTemperature", &["temperature"]),
    ("nvmlDeviceGetCurrentClocksThrottleReasons", &["throttle"]),
    ("nvmlDeviceGetFanSpeed_v2", &["fan"]),
    ("nvmlDeviceGetTotalEnergyConsumption", &["energy"]),
    ("nvmlDeviceGetPcieThroughput", &["receive", "send"]),
    ("nvmlDeviceGetCurrPcieLinkGeneration", &["link"]),
    ("nvmlDeviceGetCurrPcieLinkWidth", &["link"]),
    ("nvmlDeviceGetTotalEccErrors", &["ecc_corrected", "ecc_uncorrected"]),
    ("nvmlDeviceGetCudaComputeCapability", &["capability"]),
    ("nvmlDeviceGetEnforcedPowerLimit", &["limit"]),
    ("nvmlDeviceGetPowerManagementLimitConstraints", &["limit_max"]),
    ("nvmlDeviceGetTemperatureThreshold", &["slowdown", "shutdown"]),
    ("nvmlDeviceGetMaxClockInfo", &["sm_max", "memory_max"]),
    ("nvmlDeviceGetMigMode", &["mig"]),
    ("nvmlDeviceGetPciInfo_v3", &["pci"]),
];

/// A card that lacks nothing.
fn whole() -> Card {
    Card { nvlinks: (1, 1), ..Card::numbered(0) }
}

#[test]
fn a_reading_that_a_card_does_not_give_is_missing_alone() {
    assert_eq!(whys(&mut Rig::new(&one(whole()))), []);
    for (symbol, names) in SYMBOLS {
        for (code, why) in [
            (code::NOT_SUPPORTED, Why::NotSupported),
            (code::NO_PERMISSION, Why::NoPermission),
            (code::UNKNOWN, Why::Failed),
        ] {
            let expected: Vec<_> = names.iter().map(|name| (*name, why)).collect();
            assert_eq!(whys(&mut Rig::new(&one(whole().without(symbol, code)))), expected, "{symbol}, {code}");
        }
    }
}

#[test]
fn a_library_without_a_symbol_lacks_that_reading_alone() {
    for (symbol, names) in SYMBOLS {
        let expected: Vec<_> = names.iter().map(|name| (*name, Why::OldDriver)).collect();
        assert_eq!(whys(&mut Rig::without(&[symbol], &one(whole()))), expected, "{symbol}");
    }
}

#[test]
fn a_driver_before_510_is_read_by_its_older_calls() {
    let processes = vec![Process { pid: 7, memory_used_bytes: Some(GIB), graphics: false }];
    let newer = [
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
    ];
    let mut rig = Rig::without(&newer, &one(Card { processes, ..whole() }));
    assert_eq!(whys(&mut rig), [("reserved", Why::OldDriver)]);
    let sample = rig.sample();
    assert_eq!(sample.memory_used_bytes, Reading::Is(7 * GIB + (300 << 20)), "with what the driver keeps");
    let slow = rig.slow_sample();
    assert_eq!(slow.processes.get().map(Vec::len), Some(1));

    let older = ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses_v2"];
    let mut rig = Rig::without(&[&newer[..], &older].concat(), &one(whole()));
    let missing: Vec<_> = ["total", "used", "free", "reserved"].map(|name| (name, Why::OldDriver)).to_vec();
    assert_eq!(whys(&mut rig), missing, "of those that draw there is still an answer");
}

#[test]
fn a_card_that_may_not_tell_its_memory_says_so() {
    let mut rig = Rig::new(&one(whole().without("nvmlDeviceGetMemoryInfo_v2", code::NO_PERMISSION)));
    let missing = ["total", "used", "free", "reserved"].map(|name| (name, Why::NoPermission));
    assert_eq!(whys(&mut rig), missing);
}

#[test]
fn processes_have_names_and_the_largest_comes_first() {
    let own = std::process::id();
    let process = |pid, memory_used_bytes, graphics| Process { pid, memory_used_bytes, graphics };
    let processes =
        vec![process(1 << 30, Some(GIB), false), process(own, Some(6 * GIB), false), process(own, Some(6 * GIB), true)];
    let mut rig = Rig::new(&one(Card { processes, ..whole() }));
    let sample = rig.slow_sample();
    let [first, second] = &sample.processes.get().expect("processes")[..] else { panic!("{sample:?}") };
    assert_eq!((first.pid, &first.memory_used_bytes), (own, &Reading::Is(6 * GIB)));
    assert!(first.name.get().is_some_and(|name| name.starts_with("headroom")), "{first:?}");
    assert_eq!((second.pid, &second.name), (1 << 30, &missing(Why::NotVisible)));
}

#[test]
fn windows_hides_what_a_process_has() {
    let processes = vec![Process { pid: 7, memory_used_bytes: None, graphics: false }];
    let scenario = one(Card { processes, ..whole() });
    let hidden = |rig: &mut Rig| rig.slow_sample().processes.get().map(|all| all[0].memory_used_bytes.clone());
    let mut wsl = Rig::in_folder("wsl", &[], &scenario);
    assert_eq!(hidden(&mut wsl), Some(missing(Why::HiddenByWindows)));
    assert_eq!(hidden(&mut Rig::new(&scenario)), Some(missing(Why::NotSupported)));

    let none = ["Compute", "Graphics"].map(|kind| format!("nvmlDeviceGet{kind}RunningProcesses_v3"));
    let none = none.iter().fold(whole(), |card, symbol| card.without(symbol, code::NOT_SUPPORTED));
    let mut wsl = Rig::in_folder("wsl", &[], &one(none));
    assert_eq!(wsl.slow_sample().processes, missing(Why::HiddenByWindows));
}
