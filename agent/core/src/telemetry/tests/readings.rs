//! Every reading, and every reason why one is missing.

use headroom_fake_nvml::{Course, FakeGpu, Process, Scenario, code};
use headroom_protocol::{
    gpu::Gpu,
    metric::{Sample, SlowSample},
    reading::{MissingReason, Reading},
};

use super::{Rig, uuid};

const GIB: u64 = 1 << 30;

fn one(gpu: FakeGpu) -> Scenario {
    Scenario { gpus: vec![gpu], time_s: Some(1.0), ..Scenario::default() }
}

fn missing<T>(why: MissingReason) -> Reading<T> {
    Reading::missing(why)
}

#[test]
fn a_whole_gpu_is_read_with_its_units() {
    let mut rig = Rig::new(&one(FakeGpu { ecc: (3, 1), nvlinks: (2, 6), ..FakeGpu::numbered(0) }));
    let events = rig.gpus();
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
    assert_eq!(events, [expected]);
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
fn implausible_readings_are_missing() {
    let stays = Course::Stays;
    let absurd = FakeGpu {
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
        ..FakeGpu::numbered(0)
    };
    let mut rig = Rig::new(&one(absurd));
    let gpu = rig.gpus().remove(0);
    assert_eq!(gpu.memory_total_bytes, missing(MissingReason::Implausible));
    let Sample { memory_used_bytes, memory_free_bytes, memory_reserved_bytes, power_watts, throttle, .. } =
        rig.sample();
    assert_eq!(
        [memory_used_bytes, memory_free_bytes, memory_reserved_bytes],
        [(); 3].map(|()| missing(MissingReason::Implausible))
    );
    assert_eq!((power_watts, throttle), (missing(MissingReason::Implausible), Reading::Is(4)));
    let Sample {
        utilization_percent,
        memory_utilization_percent,
        clock_sm_mhz,
        clock_memory_mhz,
        temperature_celsius,
        ..
    } = rig.sample();
    let rest = [utilization_percent, memory_utilization_percent, clock_sm_mhz, clock_memory_mhz, temperature_celsius];
    assert_eq!(rest, [(); 5].map(|()| missing(MissingReason::Implausible)));
    let slow = rig.slow_sample();
    assert_eq!(
        [slow.fan_percent, slow.ecc_corrected, slow.ecc_uncorrected],
        [(); 3].map(|()| missing(MissingReason::Implausible))
    );
    assert_eq!(slow.energy_joules, missing(MissingReason::Implausible));
    let processes = slow.processes.get().expect("processes");
    assert_eq!(processes[0].memory_used_bytes, missing(MissingReason::Implausible));
    // The largest plausible value is a reading.
    let most = FakeGpu {
        utilization_percent: stays(100.0),
        temperature_celsius: stays(110.0),
        fan_percent: stays(105.0),
        ..FakeGpu::numbered(0)
    };
    let mut rig = Rig::new(&one(most));
    let sample = rig.sample();
    assert_eq!((sample.utilization_percent, sample.temperature_celsius), (Reading::Is(100), Reading::Is(110)));
    assert_eq!(rig.slow_sample().fan_percent, Reading::Is(105));
}

#[test]
fn readings_beyond_what_the_gpu_states_are_missing() {
    let stays = Course::Stays;
    let of = |clock_sm_mhz, clock_memory_mhz, memory_total_bytes| {
        let gpu = FakeGpu {
            clock_sm_mhz: stays(clock_sm_mhz),
            clock_memory_mhz: stays(clock_memory_mhz),
            memory_total_bytes,
            ..FakeGpu::numbered(0)
        };
        Rig::new(&one(gpu))
    };
    let mut rig = of(1.0, 1.0, 0);
    let gpu = rig.gpus().remove(0);
    assert_eq!(gpu.memory_total_bytes, missing(MissingReason::Implausible));
    assert_eq!(rig.sample().memory_used_bytes, missing(MissingReason::Implausible));
    let [sm_max, memory_max] = [gpu.clock_sm_max_mhz, gpu.clock_memory_max_mhz]
        .map(|max| f64::from(u32::try_from(*max.get().expect("a maximum")).expect("a clock")));
    let mut rig = of(1.5 * sm_max, 1.5 * memory_max, 1 << 34);
    let sample = rig.sample();
    assert_eq!([sample.clock_sm_mhz, sample.clock_memory_mhz], [(); 2].map(|()| missing(MissingReason::Implausible)));
    // Overclocked.
    let mut rig = of(1.1 * sm_max, 1.1 * memory_max, 1 << 34);
    let sample = rig.sample();
    assert!(sample.clock_sm_mhz.get().is_some() && sample.clock_memory_mhz.get().is_some());
}

#[test]
fn values_follow_the_scenario() {
    let course = Course::Goes(vec![(0.0, 50.0), (10.0, 90.0)]);
    let at = |time_s| {
        let gpu = FakeGpu { temperature_celsius: course.clone(), ..FakeGpu::default() };
        Scenario { time_s: Some(time_s), ..one(gpu) }
    };
    let mut rig = Rig::new(&at(0.0));
    for (time_s, celsius) in [(0.0, 50), (5.0, 70), (10.0, 90), (60.0, 90)] {
        rig.play(&at(time_s));
        rig.seconds(1);
        assert_eq!(rig.sample().temperature_celsius, Reading::Is(celsius), "{time_s} s");
    }
}

/// Reads all readings of a GPU, and returns the missing ones with their reasons.
fn whys(rig: &mut Rig) -> Vec<(&'static str, MissingReason)> {
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

/// Each symbol, and the readings that are missing without it. The memory call before driver 510 is a case of its own.
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

/// A GPU with every feature.
fn whole() -> FakeGpu {
    FakeGpu { nvlinks: (1, 1), ..FakeGpu::numbered(0) }
}

#[test]
fn a_reading_that_a_gpu_does_not_give_is_missing_alone() {
    assert_eq!(whys(&mut Rig::new(&one(whole()))), []);
    for (symbol, names) in SYMBOLS {
        for (code, why) in [
            (code::NOT_SUPPORTED, MissingReason::NotSupported),
            (code::NO_PERMISSION, MissingReason::NoPermission),
            (code::UNKNOWN, MissingReason::Failed),
        ] {
            let expected: Vec<_> = names.iter().map(|name| (*name, why)).collect();
            assert_eq!(whys(&mut Rig::new(&one(whole().without(symbol, code)))), expected, "{symbol}, {code}");
        }
    }
}

#[test]
fn a_library_without_a_symbol_lacks_that_reading_alone() {
    for (symbol, names) in SYMBOLS {
        let expected: Vec<_> = names.iter().map(|name| (*name, MissingReason::OldDriver)).collect();
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
    let mut rig = Rig::without(&newer, &one(FakeGpu { processes, ..whole() }));
    assert_eq!(whys(&mut rig), [("reserved", MissingReason::OldDriver)]);
    let sample = rig.sample();
    assert_eq!(sample.memory_used_bytes, Reading::Is(7 * GIB + (300 << 20)), "including the driver's reserve");
    let slow = rig.slow_sample();
    assert_eq!(slow.processes.get().map(Vec::len), Some(1));

    let older = ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses_v2"];
    let mut rig = Rig::without(&[&newer[..], &older].concat(), &one(whole()));
    let missing: Vec<_> = ["total", "used", "free", "reserved"].map(|name| (name, MissingReason::OldDriver)).to_vec();
    assert_eq!(whys(&mut rig), missing, "graphics processes are still listed");
}

#[test]
fn gpu_without_memory_permission_reports_reason() {
    let mut rig = Rig::new(&one(whole().without("nvmlDeviceGetMemoryInfo_v2", code::NO_PERMISSION)));
    let missing = ["total", "used", "free", "reserved"].map(|name| (name, MissingReason::NoPermission));
    assert_eq!(whys(&mut rig), missing);
}

#[test]
fn processes_have_names_and_the_largest_comes_first() {
    let own = std::process::id();
    let process = |pid, memory_used_bytes, graphics| Process { pid, memory_used_bytes, graphics };
    let processes =
        vec![process(1 << 30, Some(GIB), false), process(own, Some(6 * GIB), false), process(own, Some(6 * GIB), true)];
    let mut rig = Rig::new(&one(FakeGpu { processes, ..whole() }));
    let sample = rig.slow_sample();
    let [first, second] = &sample.processes.get().expect("processes")[..] else { panic!("{sample:?}") };
    assert_eq!((first.pid, &first.memory_used_bytes), (own, &Reading::Is(6 * GIB)));
    assert!(first.name.get().is_some_and(|name| name.starts_with("headroom")), "{first:?}");
    assert_eq!((second.pid, &second.name), (1 << 30, &missing(MissingReason::NotVisible)));
}

#[test]
fn windows_hides_what_a_process_has() {
    let processes = vec![Process { pid: 7, memory_used_bytes: None, graphics: false }];
    let scenario = one(FakeGpu { processes, ..whole() });
    let hidden = |rig: &mut Rig| rig.slow_sample().processes.get().map(|all| all[0].memory_used_bytes.clone());
    let mut wsl = Rig::in_folder("wsl", &[], &scenario);
    assert_eq!(hidden(&mut wsl), Some(missing(MissingReason::HiddenByWindows)));
    assert_eq!(hidden(&mut Rig::new(&scenario)), Some(missing(MissingReason::NotSupported)));

    let none = ["Compute", "Graphics"].map(|kind| format!("nvmlDeviceGet{kind}RunningProcesses_v3"));
    let none = none.iter().fold(whole(), |gpu, symbol| gpu.without(symbol, code::NOT_SUPPORTED));
    let mut wsl = Rig::in_folder("wsl", &[], &one(none));
    assert_eq!(wsl.slow_sample().processes, missing(MissingReason::HiddenByWindows));
}
