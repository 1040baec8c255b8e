//! Energy of the GPUs in joules since monitoring began. A run uses differences of it.
//!
//! A GPU's own energy counter takes precedence; without one, power is integrated over time.

use headroom_protocol::{SlowReadings, Telemetry};

use super::{TelemetryEvent, gpus::GPUS_MAX};

/// The longest gap between two power readings, in milliseconds, over which their mean is integrated. The energy of a
/// longer gap is unknown.
const HOLE_MS: u64 = 2000;

/// Joules per kilowatt-hour.
pub const JOULES_PER_KWH: f64 = 3_600_000.0;

/// The energy of every GPU.
#[derive(Clone, Debug, Default)]
pub struct Energy {
    /// The GPUs by index.
    gpus: Vec<GpuEnergy>,
}

#[derive(Clone, Copy, Debug, Default)]
struct GpuEnergy {
    joules: Option<f64>,
    /// The last value of the GPU's own counter. If there is one, only the counter is used.
    counter_joules: Option<f64>,
    /// The time of the last power reading in milliseconds, and its value in watts.
    power: Option<(u64, f64)>,
}

impl Energy {
    /// Adds an observation.
    pub fn observe(&mut self, observed: &TelemetryEvent) {
        match observed {
            TelemetryEvent::Telemetry(telemetry) => self.telemetry(telemetry),
            TelemetryEvent::Slow(slow) => self.slow(slow),
            _ => {}
        }
    }

    /// Returns a GPU's energy since monitoring began; `None` if it reports neither energy nor power. The value never
    /// decreases.
    pub fn joules(&self, gpu: u32) -> Option<f64> {
        self.gpus.get(usize::try_from(gpu).ok()?)?.joules
    }

    fn telemetry(&mut self, telemetry: &Telemetry) {
        for sample in &telemetry.gpus {
            let (Some(gpu), Some(&watts)) = (self.gpu(sample.gpu), sample.power_watts.get()) else { continue };
            if gpu.counter_joules.is_some() {
                continue;
            }
            let joules = gpu.joules.get_or_insert(0.0);
            if let Some((time_ms, before)) = gpu.power {
                let passed_ms = telemetry.time_ms.saturating_sub(time_ms);
                if passed_ms <= HOLE_MS {
                    *joules += (watts + before) / 2.0 * passed_ms as f64 / 1000.0;
                }
            }
            gpu.power = Some((telemetry.time_ms, watts));
        }
    }

    fn slow(&mut self, slow: &SlowReadings) {
        for sample in &slow.gpus {
            let (Some(gpu), Some(&counter)) = (self.gpu(sample.gpu), sample.energy_joules.get()) else { continue };
            // The counter restarts when the driver is reloaded, so its new value is the energy since then.
            let step =
                gpu.counter_joules.map_or(0.0, |before| if counter < before { counter } else { counter - before });
            *gpu.joules.get_or_insert(0.0) += step;
            gpu.counter_joules = Some(counter);
        }
    }

    fn gpu(&mut self, gpu: u32) -> Option<&mut GpuEnergy> {
        let place = usize::try_from(gpu).ok().filter(|&place| place < GPUS_MAX)?;
        if self.gpus.len() <= place {
            self.gpus.resize(place + 1, GpuEnergy::default());
        }
        self.gpus.get_mut(place)
    }
}
