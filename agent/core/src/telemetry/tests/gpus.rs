//! GPUs that go, come back, change their order and are split.

use headroom_fake_nvml::{FakeGpu, Scenario, code};
use headroom_protocol::reading::{MissingReason, Reading};

use super::{Rig, TelemetryEvent, back, inventory, lost, uuid};
use crate::telemetry::reader::{RENEW, RENEW_MAX};

const ALWAYS: (f64, f64) = (0.0, f64::MAX);

fn indices(rig: &mut Rig) -> Vec<u32> {
    rig.telemetry().gpus.iter().map(|sample| sample.gpu).collect()
}

#[test]
fn a_machine_without_gpus_has_an_empty_list() {
    let mut rig = Rig::new(&Scenario::default());
    assert_eq!(rig.gpus(), []);
    assert_eq!(indices(&mut rig), [0; 0]);
}

#[test]
fn every_gpu_is_read() {
    let mut rig = Rig::new(&Scenario::of_gpus(8));
    let gpus = rig.gpus();
    assert_eq!(gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    assert_eq!(indices(&mut rig), (0..8).collect::<Vec<_>>());
    assert_eq!(rig.slow().gpus.len(), 8);
}

#[test]
fn a_lost_gpu_keeps_its_place_until_it_is_back() {
    for how in ["lost", "reset", "reading", "uncounted"] {
        let mut scenario = Scenario::of_gpus(3);
        let mut rig = Rig::new(&scenario);
        rig.read();
        match how {
            "lost" => scenario.gpus[1].lost_s = vec![ALWAYS],
            "reset" => scenario.gpus[1] = FakeGpu::numbered(1).without("*", 16),
            "reading" => {
                scenario.gpus[1] = FakeGpu::numbered(1).without("nvmlDeviceGetPowerUsage", code::GPU_IS_LOST);
            }
            _ => scenario.gpus[1].uncounted_s = vec![ALWAYS],
        }
        rig.play(&scenario);
        let events = rig.seconds(2);
        let [TelemetryEvent::Inventory(gpus), event] = &events[..] else { panic!("{how}: {events:?}") };
        assert_eq!(*event, lost(1), "{how}");
        assert_eq!(gpus.iter().map(|gpu| gpu.present).collect::<Vec<_>>(), [true, false, true], "{how}");
        assert_eq!(indices(&mut rig), [0, 2], "{how}: the other GPUs are still read");
        assert_eq!(rig.slow().gpus.len(), 2, "{how}");
        assert_eq!(rig.seconds(10), [], "{how}: it is reported once");

        rig.play(&Scenario::of_gpus(3));
        let events = rig.seconds(2);
        let [TelemetryEvent::Inventory(gpus), event] = &events[..] else { panic!("{how}: {events:?}") };
        assert_eq!(*event, back(1), "{how}");
        assert!(gpus.iter().all(|gpu| gpu.present), "{how}");
        assert_eq!(indices(&mut rig), [0, 1, 2], "{how}");
    }
}

#[test]
fn a_gpu_lost_at_a_time_and_back_at_another_is_reported_in_a_second() {
    let at = |time_s| {
        let gpu = FakeGpu { lost_s: vec![(5.0, 8.0)], ..FakeGpu::numbered(0) };
        Scenario { time_s: Some(time_s), gpus: vec![gpu], ..Scenario::default() }
    };
    let mut rig = Rig::new(&at(0.0));
    rig.seconds(1);
    let mut events = Vec::new();
    for second in 0..12 {
        rig.play(&at(f64::from(second)));
        let heard = rig.seconds(1).into_iter();
        events
            .extend(heard.filter(|event| !matches!(event, TelemetryEvent::Inventory(_))).map(|event| (second, event)));
    }
    assert_eq!(events, [(5, lost(0)), (8, back(0))]);
}

#[test]
fn gpu_is_identified_by_uuid_at_any_index() {
    let mut scenario = Scenario::of_gpus(3);
    let mut rig = Rig::new(&scenario);
    rig.read();
    scenario.gpus.remove(0);
    rig.play(&scenario);
    assert_eq!(rig.seconds(2).last(), Some(&lost(0)));
    scenario.gpus.reverse();
    scenario.gpus[0].memory_used_bytes = headroom_fake_nvml::Course::Stays(5.0);
    scenario.gpus.push(FakeGpu::numbered(0));
    rig.play(&scenario);
    assert_eq!(rig.seconds(2).last(), Some(&back(0)));
    let telemetry = rig.telemetry();
    assert_eq!(telemetry.gpus[2].gpu, 2);
    assert_eq!(telemetry.gpus[2].memory_used_bytes, Reading::Is(5), "GPU 2 is read at its new index");
}

#[test]
fn a_new_gpu_takes_a_new_place() {
    let mut rig = Rig::new(&Scenario::of_gpus(1));
    rig.read();
    rig.play(&Scenario::of_gpus(2));
    let events = rig.seconds(2);
    let [TelemetryEvent::Inventory(gpus)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(gpus[1].uuid, uuid(1));
    assert_eq!(indices(&mut rig), [0, 1]);
}

#[test]
fn a_gpu_that_never_answered_has_a_place_and_is_reported_when_it_does() {
    let mut scenario = Scenario::of_gpus(2);
    scenario.gpus[0].lost_s = vec![ALWAYS];
    let mut rig = Rig::new(&scenario);
    let events = rig.read();
    let gpus = inventory(&events).expect("an inventory");
    assert_eq!((gpus[0].present, &*gpus[0].uuid), (false, "unknown-0"));
    assert_eq!(gpus[0].memory_total_bytes.why(), Some(MissingReason::GpuLost));
    assert!(events.contains(&TelemetryEvent::GpuLost("unknown-0".to_owned())), "{events:?}");
    assert_eq!(indices(&mut rig), [1]);
    rig.play(&Scenario::of_gpus(2));
    let events = rig.seconds(2);
    let gpus = inventory(&events).expect("an inventory");
    assert_eq!(gpus.iter().map(|gpu| &*gpu.uuid).collect::<Vec<_>>(), [uuid(0), uuid(1)]);
    assert_eq!(events.last(), Some(&back(0)));
}

#[test]
fn foreign_gpu_is_ignored() {
    let mut scenario = Scenario::of_gpus(2);
    scenario.gpus[0] = FakeGpu::numbered(0).without("nvmlDeviceGetHandleByIndex_v2", code::NO_PERMISSION);
    let mut rig = Rig::new(&scenario);
    assert_eq!(rig.gpus().iter().map(|gpu| &*gpu.uuid).collect::<Vec<_>>(), [uuid(1)]);
}

#[test]
fn a_gpu_without_a_uuid_is_called_by_its_place() {
    let mut rig = Rig::without(&["nvmlDeviceGetUUID"], &Scenario::of_gpus(2));
    let gpus = rig.gpus();
    assert_eq!(gpus.iter().map(|gpu| &*gpu.uuid).collect::<Vec<_>>(), ["PCI-00000000:01:00.0", "PCI-00000000:02:00.0"]);
    let mut rig = Rig::without(&["nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3"], &Scenario::of_gpus(1));
    assert_eq!(rig.gpus()[0].uuid, "card-0");
}

#[test]
fn nvml_restarts_for_lost_gpu_with_backoff() {
    let mut scenario = Scenario::of_gpus(2);
    scenario.gpus[1].lost_s = vec![ALWAYS];
    let mut rig = Rig::new(&scenario);
    let mut begun = Vec::new();
    let mut before = None;
    for second in 0..7200 {
        for _ in 0..10 {
            assert_eq!(indices(&mut rig), [0], "the other GPU misses nothing");
            let library = rig.shared.get().map(|attached| std::sync::Arc::as_ptr(&attached.library).addr());
            if before.replace(library) != Some(library) {
                begun.push(second);
            }
        }
    }
    assert_eq!(begun[0], 0);
    let waits: Vec<u64> = begun.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(waits[0], RENEW.as_secs(), "{waits:?}");
    assert!(waits.iter().all(|&wait| wait <= RENEW_MAX.as_secs()), "{waits:?}");
    assert!(waits.len() < 20, "{waits:?}");
}

#[test]
fn a_split_gpu_has_its_instances_beside_it() {
    let nothing = |gpu: FakeGpu| {
        let symbols =
            ["UtilizationRates", "PowerUsage", "ClockInfo", "Temperature", "FanSpeed_v2", "TotalEnergyConsumption"];
        symbols.iter().fold(gpu, |gpu, it| gpu.without(&format!("nvmlDeviceGet{it}"), code::INVALID_ARGUMENT))
    };
    let instance = |number: usize| {
        let gpu = nothing(FakeGpu::numbered(number));
        FakeGpu {
            uuid: format!("MIG-{number}"),
            name: "NVIDIA H100 MIG 1g.10gb".to_owned(),
            memory_total_bytes: 10 << 30,
            ..gpu
        }
    };
    let split = |instances: Vec<FakeGpu>| {
        let gpu = FakeGpu { mig: Some(instances), ..FakeGpu::numbered(0) };
        let gpu = gpu.without("nvmlDeviceGetUtilizationRates", code::NOT_SUPPORTED);
        Scenario { gpus: vec![gpu.without("nvmlDeviceGetMemoryInfo_v2", code::NO_PERMISSION)], ..Scenario::default() }
    };
    let mut rig = Rig::new(&split(vec![instance(1), instance(2)]));
    let gpus = rig.gpus();
    assert_eq!(gpus.iter().map(|gpu| &*gpu.uuid).collect::<Vec<_>>(), [&*uuid(0), "MIG-1", "MIG-2"]);
    assert_eq!(gpus[0].mig_enabled, Reading::Is(true));
    assert_eq!(gpus[0].memory_total_bytes.why(), Some(MissingReason::NoPermission));
    assert_eq!(gpus[1].memory_total_bytes, Reading::Is(10 << 30));
    let telemetry = rig.telemetry();
    assert_eq!(telemetry.gpus[0].utilization_percent.why(), Some(MissingReason::NotSupported));
    assert_eq!(telemetry.gpus[1].power_watts.why(), Some(MissingReason::NotSupported));
    assert_eq!(telemetry.gpus[1].memory_used_bytes, Reading::Is(7 << 30));
    assert_eq!(rig.slow().gpus.len(), 3);

    rig.play(&split(vec![instance(2)]));
    let events = rig.seconds(2);
    assert!(events.contains(&TelemetryEvent::GpuLost("MIG-1".to_owned())), "{events:?}");
    assert_eq!(indices(&mut rig), [0, 2], "the other instance is read at its new index");
}
