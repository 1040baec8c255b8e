//! Energy from the counter, from power, and without either.

use std::sync::Arc;

use headroom_fake_nvml::{Course, FakeGpu, Scenario, code};
use headroom_protocol::{
    SlowReadings, Telemetry,
    reading::{MissingReason, Reading},
};

use super::{Rig, TelemetryEvent};
use crate::telemetry::energy::Energy;

/// Samples of one GPU, from a scenario.
struct Samples {
    telemetry: Telemetry,
    slow: SlowReadings,
}

impl Samples {
    fn new() -> Self {
        let mut rig = Rig::new(&Scenario::of_gpus(1));
        let telemetry = rig.telemetry();
        Self { telemetry, slow: rig.slow() }
    }

    fn power(&mut self, energy: &mut Energy, time_ms: u64, watts: Option<f64>) {
        self.telemetry.time_ms = time_ms;
        self.telemetry.gpus[0].power_watts = watts.map_or(Reading::missing(MissingReason::NotSupported), Reading::Is);
        energy.observe(&TelemetryEvent::Telemetry(Arc::new(self.telemetry.clone())));
    }

    fn counter(&mut self, energy: &mut Energy, joules: Option<f64>) {
        self.slow.gpus[0].energy_joules = joules.map_or(Reading::missing(MissingReason::NotSupported), Reading::Is);
        energy.observe(&TelemetryEvent::Slow(self.slow.clone()));
    }
}

#[track_caller]
fn close(joules: Option<f64>, expected: f64) {
    assert!(joules.is_some_and(|joules| (joules - expected).abs() < 1e-6), "{joules:?}, not {expected}");
}

#[test]
fn energy_counter_of_gpu_is_used() {
    let (mut samples, mut energy) = (Samples::new(), Energy::default());
    assert_eq!(energy.joules(0), None);
    for (counter, expected) in [(5000.0, 0.0), (5200.0, 200.0), (5200.0, 200.0), (5350.5, 350.5)] {
        samples.counter(&mut energy, Some(counter));
        samples.power(&mut energy, 1000, Some(1e9));
        close(energy.joules(0), expected);
    }
    samples.counter(&mut energy, None);
    close(energy.joules(0), 350.5);
    // The driver was reloaded.
    samples.counter(&mut energy, Some(30.0));
    close(energy.joules(0), 380.5);
    assert_eq!(energy.joules(1), None);
}

#[test]
fn power_is_summed_where_nothing_counts() {
    let (mut samples, mut energy) = (Samples::new(), Energy::default());
    samples.counter(&mut energy, None);
    assert_eq!(energy.joules(0), None);
    samples.power(&mut energy, 0, Some(100.0));
    samples.power(&mut energy, 1000, Some(200.0));
    close(energy.joules(0), 150.0);
    samples.power(&mut energy, 1100, None);
    samples.power(&mut energy, 1200, Some(200.0));
    close(energy.joules(0), 190.0);
    // A gap of ten minutes.
    samples.power(&mut energy, 601_200, Some(200.0));
    close(energy.joules(0), 190.0);
    samples.power(&mut energy, 601_300, Some(200.0));
    close(energy.joules(0), 210.0);
}

#[test]
fn a_count_that_comes_later_takes_nothing_back() {
    let (mut samples, mut energy) = (Samples::new(), Energy::default());
    samples.power(&mut energy, 0, Some(100.0));
    samples.power(&mut energy, 1000, Some(100.0));
    samples.counter(&mut energy, Some(7000.0));
    close(energy.joules(0), 100.0);
    samples.power(&mut energy, 2000, Some(100.0));
    samples.counter(&mut energy, Some(7090.0));
    close(energy.joules(0), 190.0);
}

#[test]
fn index_beyond_gpus_is_none() {
    let (mut samples, mut energy) = (Samples::new(), Energy::default());
    samples.telemetry.gpus[0].gpu = u32::MAX;
    samples.power(&mut energy, 0, Some(1.0));
    assert_eq!(energy.joules(u32::MAX), None);
}

#[test]
fn both_ways_agree_on_a_gpu_of_a_scenario() {
    let at = |time_s: f64, errors: &[&str]| {
        let power_watts = Course::Goes(vec![(0.0, 0.0), (10.0, 200.0)]);
        // The integral of that power, a parabola, at the tenths of a second where it is read.
        let points = (0..=100).map(|tenth| f64::from(tenth) / 10.0).map(|time_s| (time_s, 10.0 * time_s * time_s));
        let gpu = FakeGpu { power_watts, energy_joules: Course::Goes(points.collect()), ..FakeGpu::default() };
        let gpu = errors.iter().fold(gpu, |gpu, symbol| gpu.without(symbol, code::NOT_SUPPORTED));
        Scenario { time_s: Some(time_s), gpus: vec![gpu], ..Scenario::default() }
    };
    for errors in [&[][..], &["nvmlDeviceGetTotalEnergyConsumption"]] {
        let mut rig = Rig::new(&at(0.0, errors));
        let mut energy = Energy::default();
        for tenth in 0..=100 {
            rig.play(&at(f64::from(tenth) / 10.0, errors));
            // The scenario is read again when a GPU is looked up.
            rig.slow();
            rig.read().iter().for_each(|events| energy.observe(events));
            if tenth % 10 == 0 {
                energy.observe(&TelemetryEvent::Slow(rig.slow()));
            }
        }
        let joules = energy.joules(0).expect("energy");
        assert!((joules - 1000.0).abs() < 1.0, "{errors:?}: {joules}");
    }
}
