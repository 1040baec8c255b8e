//! A GPU and its recent past, the data of its row and its charts.

use std::collections::VecDeque;

use headroom_protocol::{
    gpu::Gpu,
    metric::{Metric, Sample, SlowSample},
    reading::{MissingReason, Reading},
};

use super::{
    spark::{BRIDGED_MS, SamplePoint},
    values::{self, why},
};
use crate::{
    state::{format, rig_charts::view::Range},
    text::{self, say, t},
};

/// The metrics of the sparklines, in the order of a row.
pub const SPARKS: [Metric; 4] = [Metric::MemoryUsed, Metric::Utilization, Metric::Power, Metric::Temperature];
/// The time span of sparklines, in milliseconds. A page that was away for a moment can still fill its minute.
pub const RECENT_MS: u64 = 120_000;
/// The most samples in that time: ten per second, and a few more for an early clock.
const RECENT_SAMPLES_MAX: usize = 1_300;
/// The width of a point of the last hour, in milliseconds.
pub const SECOND_MS: u64 = 1_000;
/// The most points of the last hour.
const HOUR_POINTS_MAX: usize = 3_600;
/// The number of metrics in a history.
pub const N_METRICS: usize = Metric::FAST.len();

/// The values of one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    /// The start, in milliseconds.
    pub time_ms: u64,
    /// The values of [`Metric::FAST`], in that order.
    pub parts: [Part; N_METRICS],
}

/// A metric within a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// The minimum.
    pub min: f32,
    /// The maximum.
    pub max: f32,
    /// The sum of the readings.
    pub sum: f32,
    /// The number of readings.
    pub n: u16,
}

impl Part {
    /// A part without readings.
    pub const NOTHING: Self = Self { min: f32::INFINITY, max: f32::NEG_INFINITY, sum: 0.0, n: 0 };

    fn take(&mut self, value: f32) {
        if value.is_nan() {
            return;
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += value;
        self.n = self.n.saturating_add(1);
    }

    /// Minimum, mean and maximum; `None` without readings.
    pub fn all(&self) -> Option<[f32; 3]> {
        (self.n > 0).then(|| [self.min, self.sum / f32::from(self.n), self.max])
    }
}

/// A GPU of the rig.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitoredGpu {
    /// The GPU's description.
    pub info: Gpu,
    /// The newest sample.
    pub sample: Option<Sample>,
    /// The newest sample of the readings taken once per second.
    pub slow: Option<SlowSample>,
    /// The last two minutes, oldest first.
    pub recent: VecDeque<SamplePoint>,
    /// The last hour, oldest first.
    pub hour: VecDeque<Second>,
}

impl MonitoredGpu {
    /// A GPU without readings.
    pub fn new(info: Gpu) -> Self {
        Self { info, sample: None, slow: None, recent: VecDeque::new(), hour: VecDeque::new() }
    }

    /// The memory available to programs in bytes, if known.
    pub fn total_bytes(&self) -> Option<u64> {
        self.info.memory_total_bytes.get().copied().filter(|total| *total > 0)
    }

    /// Takes a sample. An older sample is inserted in order, and a duplicate is ignored.
    pub fn take(&mut self, time_ms: u64, sample: &Sample) {
        let all = Metric::FAST.map(|metric| value(sample, metric));
        let values = SPARKS.map(|metric| value(sample, metric));
        let at = self.recent.partition_point(|moment| moment.time_ms < time_ms);
        if self.recent.get(at).is_some_and(|moment| moment.time_ms == time_ms) {
            return;
        }
        if at == self.recent.len() {
            self.sample = Some(sample.clone());
        }
        self.recent.insert(at, SamplePoint { time_ms, values });
        let oldest_ms = self.recent.back().map_or(0, |newest| newest.time_ms.saturating_sub(RECENT_MS));
        while self.recent.len() > RECENT_SAMPLES_MAX || self.recent.front().is_some_and(|m| m.time_ms < oldest_ms) {
            self.recent.pop_front();
        }
        self.count(time_ms, &all);
    }

    /// Drops readings after a time, because the clock was set back since.
    pub fn forget_after(&mut self, time_ms: u64) {
        self.recent.retain(|moment| moment.time_ms <= time_ms);
        self.hour.retain(|second| second.time_ms <= time_ms);
    }

    /// The range of history to fetch, in whole seconds: from the first gap in the last two minutes to the end of the
    /// last gap. `None` if there is no gap. History is written once per second, and later on a slow disk. An answer
    /// therefore ends before the live samples began.
    pub fn missing(&self, now_ms: u64) -> Option<Range> {
        let mut before_ms = now_ms.saturating_sub(RECENT_MS);
        let mut missing = None;
        for time_ms in self.recent.iter().map(|moment| moment.time_ms).chain([now_ms]) {
            if time_ms.saturating_sub(before_ms) > BRIDGED_MS {
                let from_ms = missing.map_or(before_ms - before_ms % SECOND_MS, |missing: Range| missing.from_ms);
                missing = Some(Range { from_ms, to_ms: time_ms.div_ceil(SECOND_MS).saturating_mul(SECOND_MS) });
            }
            before_ms = before_ms.max(time_ms);
        }
        missing
    }

    /// Adds a second of history where samples are missing.
    pub fn take_past(&mut self, time_ms: u64, parts: &[Part; N_METRICS]) {
        self.second(time_ms, parts);
        let at = self.recent.partition_point(|moment| moment.time_ms < time_ms);
        let next = self.recent.get(at).map(|moment| moment.time_ms);
        // Samples are finer; history only fills the time before them.
        if next.is_some_and(|next| next < time_ms.saturating_add(SECOND_MS)) || self.recent.len() >= RECENT_SAMPLES_MAX
        {
            return;
        }
        let mean = |metric: Metric| parts[metric.place()].all().map_or(f32::NAN, |[_, mean, _]| mean);
        self.recent.insert(at, SamplePoint { time_ms, values: SPARKS.map(mean) });
    }

    fn count(&mut self, time_ms: u64, all: &[f32; N_METRICS]) {
        if let Some(second) = self.second(time_ms, &[Part::NOTHING; N_METRICS]) {
            second.parts.iter_mut().zip(all).for_each(|(part, value)| part.take(*value));
        }
        while self.hour.len() > HOUR_POINTS_MAX {
            self.hour.pop_front();
        }
    }

    /// The second of the hour that contains a time. If it is missing, it is inserted with `parts`.
    fn second(&mut self, time_ms: u64, parts: &[Part; N_METRICS]) -> Option<&mut Second> {
        let time_ms = time_ms - time_ms % SECOND_MS;
        let at = self.hour.partition_point(|second| second.time_ms < time_ms);
        if self.hour.get(at).is_none_or(|second| second.time_ms != time_ms) {
            self.hour.insert(at, Second { time_ms, parts: *parts });
        }
        self.hour.get_mut(at)
    }
}

/// Readings of a GPU that have no cell: clock and fan, and warnings. A missing reading has a dash and the reason.
pub fn facts(gpu: &MonitoredGpu) -> Vec<String> {
    let (sample, slow) = (gpu.sample.as_ref(), gpu.slow.as_ref());
    let mut facts = Vec::new();
    let mut add = |name: &str, reading: Option<&Reading<u64>>, said: &dyn Fn(u64) -> Option<String>| {
        facts.extend(match reading {
            Some(Reading::Is(value)) => said(*value),
            Some(Reading::Missing { missing }) => Some(say(&text::rig_missing(name, why(*missing)))),
            None => Some(say(&text::rig_missing(name, why(MissingReason::NotYet)))),
        });
    };
    add(t(text::HISTORY_OF_CLOCK), sample.map(|sample| &sample.clock_sm_mhz), &|mhz| {
        Some(values::value(mhz as f64, 0, "MHz"))
    });
    add(t(text::RIG_FAN), slow.map(|slow| &slow.fan_percent), &|percent| {
        Some(format!("{} {}", t(text::RIG_FAN), values::value(percent as f64, 0, "%")))
    });
    // Throttle reasons are shown elsewhere.
    add(t(text::RIG_THROTTLE), sample.map(|sample| &sample.throttle), &|_| None);
    add("ECC", slow.map(|slow| &slow.ecc_uncorrected), &|errors| {
        (errors > 0).then(|| say(&text::rig_ecc(format::grouped(errors))))
    });
    if gpu.info.mig_enabled.get() == Some(&true) {
        facts.push(t(text::RIG_MIG).to_owned());
    }
    facts
}

/// A metric of a sample, NaN if missing.
fn value(sample: &Sample, metric: Metric) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "seven digits suffice for a chart")]
    let value = sample.reading(metric).and_then(|reading| Some(reading.get()?.as_f64() as f32));
    value.filter(|value| value.is_finite()).unwrap_or(f32::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rig::sample::{gpu, sample, slow};

    const T: u64 = 1_795_000_000_000;

    #[test]
    fn a_day_at_ten_a_second_takes_no_more_than_an_hour() {
        let mut gpu = MonitoredGpu::new(gpu(0));
        // Every hundredth of a day's samples would suffice for the hour; two hours of all samples reach every bound.
        for tick in 0..72_000_u64 {
            gpu.take(T + tick * 100, &sample(0, tick % 97));
        }
        assert!(gpu.recent.len() <= RECENT_SAMPLES_MAX, "{}", gpu.recent.len());
        assert_eq!(gpu.recent.front().map(|moment| moment.time_ms), Some(T + 71_999 * 100 - RECENT_MS));
        assert_eq!(gpu.hour.len(), HOUR_POINTS_MAX);
        assert_eq!(gpu.hour.back().and_then(|second| second.parts[1].all()).map(|all| all[0] <= all[2]), Some(true));
    }

    #[test]
    fn late_samples_are_inserted_in_order_once() {
        let mut gpu = MonitoredGpu::new(gpu(0));
        for tick in [0, 1, 2, 8, 9, 3, 4, 5, 6, 7, 7, 9] {
            gpu.take(T + tick * 100, &sample(0, tick));
        }
        let times: Vec<u64> = gpu.recent.iter().map(|moment| (moment.time_ms - T) / 100).collect();
        assert_eq!(times, (0..10).collect::<Vec<_>>());
        assert_eq!(gpu.hour.len(), 1);
        assert_eq!(gpu.hour[0].parts[1].n, 10);
        assert_eq!(gpu.hour[0].parts[1].all(), Some([0.0, 4.5, 9.0]));
        let newest = gpu.sample.expect("a sample").utilization_percent;
        assert_eq!(newest.get(), Some(&9), "the newest reading is the newest in time");
    }

    #[test]
    fn history_goes_before_samples_and_never_between_them() {
        let mut gpu = MonitoredGpu::new(gpu(0));
        gpu.take(T, &sample(0, 50));
        gpu.take(T + 100, &sample(0, 51));
        for second in [3, 2, 1, 0] {
            gpu.take_past(T - second * SECOND_MS, &past(1.0));
        }
        assert_eq!(gpu.recent.len(), 5, "{:?}", gpu.recent);
        assert!(gpu.recent.iter().is_sorted_by_key(|moment| moment.time_ms));
    }

    fn past(value: f32) -> [Part; N_METRICS] {
        [Part { min: value, max: value, sum: value, n: 1 }; N_METRICS]
    }

    #[test]
    fn unwritten_history_is_missing_until_next_request() {
        // The page may be opened at any point within a second.
        for offset_ms in (0..1000).step_by(50) {
            let now_ms = T + 200_000 + offset_ms;
            let mut gpu = MonitoredGpu::new(gpu(0));
            let asked = gpu.missing(now_ms).expect("nothing is there");
            assert_eq!(asked.span_ms() % SECOND_MS, 0);
            assert!(asked.from_ms <= now_ms - RECENT_MS && asked.to_ms >= now_ms, "{asked:?}");
            // The writer is two seconds behind, and the following samples arrive live.
            let is_written = |time_ms: u64, by_ms: u64| time_ms < by_ms;
            let answer = |gpu: &mut MonitoredGpu, asked: Range, by_ms: u64| {
                let seconds = (asked.from_ms..asked.to_ms).step_by(1000);
                seconds
                    .filter(|time_ms| is_written(*time_ms, by_ms))
                    .for_each(|time_ms| gpu.take_past(time_ms, &past(1.0)));
            };
            gpu.take(now_ms, &sample(0, 50));
            answer(&mut gpu, asked, now_ms - 2500);
            (1..30).for_each(|tick| gpu.take(now_ms + tick * 100, &sample(0, 50)));
            let later_ms = now_ms + 3000;
            let hole = gpu.missing(later_ms).expect("two seconds");
            assert!(hole.from_ms < now_ms && now_ms <= hole.to_ms && hole.span_ms() <= 5000, "{hole:?}");
            answer(&mut gpu, hole, later_ms - 2500);
            assert_eq!(gpu.missing(later_ms), None);
            // The sparkline is unbroken, and the hour has every second.
            assert_eq!(crate::state::rig::spark::path(&gpu.recent, 0, 1e12).matches('M').count(), 1);
            let seconds: Vec<u64> = gpu.hour.iter().map(|second| second.time_ms).collect();
            assert!(seconds.windows(2).all(|two| two[1] == two[0] + SECOND_MS), "{seconds:?}");
        }
    }

    #[test]
    fn nothing_is_missing_where_samples_are_late_and_all_of_it_after_a_night() {
        let mut gpu = MonitoredGpu::new(gpu(0));
        for tick in 0..100 {
            gpu.take(T + tick * BRIDGED_MS, &sample(0, 1));
        }
        let newest_ms = T + 99 * BRIDGED_MS;
        assert_eq!(gpu.missing(newest_ms + BRIDGED_MS), None);
        assert_eq!(gpu.missing(newest_ms - 1000), None, "a clock that is behind");
        let night_ms = newest_ms + 36_000_000;
        assert_eq!(gpu.missing(night_ms), Some(Range { from_ms: night_ms - RECENT_MS, to_ms: night_ms }));
    }

    #[test]
    fn missing_gpu_reading_is_a_dash_with_reason() {
        let text_of = |gpu: &MonitoredGpu| facts(gpu).join(" · ").replace(values::BLANK, " ");
        let mut gpu = MonitoredGpu::new(gpu(0));
        assert!(text_of(&gpu).matches("not read yet").count() == 4, "{}", text_of(&gpu));
        (gpu.sample, gpu.slow) = (Some(sample(0, 50)), slow(&[(0, 1, None, None)]).gpus.pop());
        assert_eq!(text_of(&gpu), "2,475 MHz · Fan 40 % · ECC – (not on this GPU)");
        let read = gpu.slow.as_mut().expect("it is read");
        read.ecc_uncorrected = Reading::Is(0);
        read.fan_percent = Reading::missing(MissingReason::NotSupported);
        gpu.sample.as_mut().expect("it is read").throttle = Reading::missing(MissingReason::NoPermission);
        assert_eq!(text_of(&gpu), "2,475 MHz · Fan – (not on this GPU) · Throttling – (no permission)");
    }

    #[test]
    fn a_missing_reading_is_no_zero() {
        let mut gpu = MonitoredGpu::new(gpu(0));
        let mut missing = sample(0, 50);
        missing.power_watts = Reading::missing(MissingReason::NotSupported);
        gpu.take(T, &missing);
        assert!(gpu.recent[0].values[2].is_nan());
        assert_eq!(gpu.hour[0].parts[3].all(), None);
    }
}
