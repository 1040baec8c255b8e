//! Every reading, and every reason why one is missing.

use headroom_fake_nvml::{Course, FakeGpu, Process, Scenario, code, device_symbols};
use headroom_protocol::{
    metric::{Group, Metric, Number},
    reading::{MissingReason, Reading},
};
use insta::assert_snapshot;
use serde_json::Value;

use super::Rig;

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
    let readings = (rig.gpus(), rig.sample(), rig.slow_sample());
    assert_snapshot!(serde_json::to_string_pretty(&readings).expect("JSON"));
}

/// A GPU whose values are all beyond any bound.
fn absurd() -> FakeGpu {
    let mut gpu = serde_json::to_value(FakeGpu::numbered(0)).expect("JSON");
    // A course is a real number or a list of points; other fields of the scenario are not.
    let is_course = |value: &Value| value.is_f64() || value[0].is_array();
    for course in gpu.as_object_mut().expect("fields").values_mut().filter(|value| is_course(value)) {
        *course = 1.8e19.into();
    }
    FakeGpu {
        memory_total_bytes: u64::MAX,
        memory_reserved_bytes: u64::MAX,
        ecc: (u64::MAX, 1 << 60),
        processes: vec![Process { pid: 1, memory_used_bytes: Some(1 << 60), ..Process::default() }],
        ..serde_json::from_value(gpu).expect("a GPU")
    }
}

#[test]
fn implausible_readings_are_missing() {
    let mut rig = Rig::new(&one(absurd()));
    let gpu = rig.gpus().remove(0);
    assert_eq!(gpu.memory_total_bytes, missing(MissingReason::Implausible));
    let (sample, slow) = (rig.sample(), rig.slow_sample());
    for metric in Group::Fast.readings().chain(Group::Slow.readings()) {
        let reading = sample.reading(metric).or_else(|| slow.reading(metric)).expect("a reading");
        match metric {
            // Any bits are plausible.
            Metric::Throttle => assert_eq!(reading, Reading::Is(Number::Whole(4))),
            // The same in every scenario.
            Metric::PcieReceive | Metric::PcieSend => assert!(reading.get().is_some(), "{metric:?}"),
            _ => assert_eq!(reading, missing(MissingReason::Implausible), "{metric:?}"),
        }
    }
    let processes = slow.processes.get().expect("processes");
    assert_eq!(processes[0].memory_used_bytes, missing(MissingReason::Implausible));
    // The largest plausible value is a reading.
    let stays = Course::Stays;
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
        ("link", slow.pcie_link.why()),
        ("processes", slow.processes.why()),
    ];
    let metrics = Group::Fast.readings().chain(Group::Slow.readings()).map(|metric| {
        let reading = sample.reading(metric).or_else(|| slow.reading(metric)).expect("a reading");
        (metric.name(), reading.why())
    });
    all.into_iter().chain(metrics).filter_map(|(name, why)| Some((name, why?))).collect()
}

/// Symbols without which no reading is missing alone: those of the GPU's identity, and of memory before and since driver
/// 510.
const OTHERS: [&str; 4] =
    ["nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"];

/// Returns each symbol of a reading.
fn symbols() -> impl Iterator<Item = &'static str> {
    device_symbols().filter(|symbol| !OTHERS.contains(symbol))
}

/// Returns the readings that are missing if a symbol fails.
fn readings_of(symbol: &str) -> Vec<&'static str> {
    let whys = whys(&mut Rig::new(&one(whole().without(symbol, code::NOT_SUPPORTED))));
    whys.into_iter().map(|(name, _)| name).collect()
}

/// The readings of the memory's call.
const MEMORY: [&str; 4] = ["total", "memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"];

/// A GPU with every feature.
fn whole() -> FakeGpu {
    FakeGpu { nvlinks: (1, 1), ..FakeGpu::numbered(0) }
}

#[test]
fn a_reading_that_a_gpu_does_not_give_is_missing_alone() {
    assert_eq!(whys(&mut Rig::new(&one(whole()))), []);
    let mut table = String::new();
    let mut seen = Vec::new();
    for symbol in symbols() {
        let names = readings_of(symbol);
        for (code, why) in [
            (code::NOT_SUPPORTED, MissingReason::NotSupported),
            (code::NO_PERMISSION, MissingReason::NoPermission),
            (code::UNKNOWN, MissingReason::Failed),
        ] {
            let expected: Vec<_> = names.iter().map(|name| (*name, why)).collect();
            assert_eq!(whys(&mut Rig::new(&one(whole().without(symbol, code)))), expected, "{symbol}, {code}");
        }
        table += &format!("{symbol}: {}\n", names.join(", "));
        seen.extend(names);
    }
    assert_snapshot!(table);
    for metric in Group::Fast.readings().chain(Group::Slow.readings()) {
        let is_memory = [Metric::MemoryUsed, Metric::MemoryFree, Metric::MemoryReserved].contains(&metric);
        assert!(is_memory || seen.contains(&metric.name()), "{metric:?} is of no symbol");
    }
}

#[test]
fn a_library_without_a_symbol_lacks_that_reading_alone() {
    for symbol in symbols() {
        let expected: Vec<_> = readings_of(symbol).into_iter().map(|name| (name, MissingReason::OldDriver)).collect();
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
    assert_eq!(whys(&mut rig), [("memory_reserved_bytes", MissingReason::OldDriver)]);
    let sample = rig.sample();
    assert_eq!(sample.memory_used_bytes, Reading::Is(7 * GIB + (300 << 20)), "including the driver's reserve");
    let slow = rig.slow_sample();
    assert_eq!(slow.processes.get().map(Vec::len), Some(1));

    let older = ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses_v2"];
    let mut rig = Rig::without(&[&newer[..], &older].concat(), &one(whole()));
    let missing = MEMORY.map(|name| (name, MissingReason::OldDriver));
    assert_eq!(whys(&mut rig), missing, "graphics processes are still listed");
}

#[test]
fn gpu_without_memory_permission_reports_reason() {
    let mut rig = Rig::new(&one(whole().without("nvmlDeviceGetMemoryInfo_v2", code::NO_PERMISSION)));
    let missing = MEMORY.map(|name| (name, MissingReason::NoPermission));
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
