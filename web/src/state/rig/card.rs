//! A card and its recent past: what its row and its charts are drawn from.

use std::collections::VecDeque;

use headroom_shared::protocol::{
    gpu::{Gpu, Sample, SlowSample},
    history::Metric,
    reading::{Reading, Why},
};

use super::{
    spark::BRIDGED_MS,
    words::{self, why},
};
use crate::{
    state::{format, rig_charts::view::Range},
    text::{self, say, t},
};

/// What a sparkline shows, in the order of a row.
pub const SPARKS: [Metric; 4] = [Metric::MemoryUsed, Metric::Utilization, Metric::Power, Metric::Temperature];
/// Time that sparklines can reach back; a page that was away for a moment has all of its minute again.
pub const RECENT_MS: u64 = 120_000;
/// Samples of that time at most: ten a second, and a few more where a clock is early.
const RECENT_SAMPLES_MAX: usize = 1_300;
/// Width of a point of the hour.
pub const SECOND_MS: u64 = 1_000;
/// Points of the hour at most.
const HOUR_POINTS_MAX: usize = 3_600;
/// How many metrics a history has.
pub const N_METRICS: usize = Metric::FAST.len();

/// One moment: NaN where the card gave nothing. Single precision is finer than any pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// When.
    pub time_ms: u64,
    /// One a metric of [`SPARKS`].
    pub values: [f32; 4],
}

/// One second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    /// Its beginning.
    pub time_ms: u64,
    /// One a metric, in the order of [`Metric::FAST`].
    pub parts: [Part; N_METRICS],
}

/// A metric within a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Least.
    pub min: f32,
    /// Greatest.
    pub max: f32,
    /// Sum.
    pub sum: f32,
    /// Of how many.
    pub n: u16,
}

impl Part {
    /// Of no reading.
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

    /// Least, mean and greatest, where there is anything.
    pub fn all(&self) -> Option<[f32; 3]> {
        (self.n > 0).then(|| [self.min, self.sum / f32::from(self.n), self.max])
    }
}

/// A card of the rig.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// What it is.
    pub gpu: Gpu,
    /// The newest reading.
    pub sample: Option<Sample>,
    /// The newest of what is read once a second.
    pub slow: Option<SlowSample>,
    /// The last two minutes, oldest first.
    pub recent: VecDeque<Moment>,
    /// The last hour, oldest first.
    pub hour: VecDeque<Second>,
}

impl Card {
    /// A card of which nothing is read yet.
    pub fn new(gpu: Gpu) -> Self {
        Self { gpu, sample: None, slow: None, recent: VecDeque::new(), hour: VecDeque::new() }
    }

    /// The memory that programs can have, where it is known.
    pub fn total_bytes(&self) -> Option<u64> {
        self.gpu.memory_total_bytes.get().copied().filter(|total| *total > 0)
    }

    /// Takes a sample; one that is not the newest finds its place, and one that is there already is left out.
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
        self.recent.insert(at, Moment { time_ms, values });
        let oldest_ms = self.recent.back().map_or(0, |newest| newest.time_ms.saturating_sub(RECENT_MS));
        while self.recent.len() > RECENT_SAMPLES_MAX || self.recent.front().is_some_and(|m| m.time_ms < oldest_ms) {
            self.recent.pop_front();
        }
        self.count(time_ms, &all);
    }

    /// Forgets what was read after a time: it was told by a clock that has been set back since.
    pub fn forget_after(&mut self, time_ms: u64) {
        self.recent.retain(|moment| moment.time_ms <= time_ms);
        self.hour.retain(|second| second.time_ms <= time_ms);
    }

    /// What history is to be asked for: the last two minutes from the first hole in them to the end of the last, in
    /// whole seconds; nothing where no line is broken. History is written once a second and later where a disk is slow,
    /// so that an answer ends before what came live began.
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

    /// Takes a second of history, where samples are not there.
    pub fn take_past(&mut self, time_ms: u64, parts: &[Part; N_METRICS]) {
        self.second(time_ms, parts);
        let at = self.recent.partition_point(|moment| moment.time_ms < time_ms);
        let next = self.recent.get(at).map(|moment| moment.time_ms);
        // Samples are finer; history only goes before them.
        if next.is_some_and(|next| next < time_ms.saturating_add(SECOND_MS)) || self.recent.len() >= RECENT_SAMPLES_MAX
        {
            return;
        }
        let mean = |metric: Metric| parts[metric.place()].all().map_or(f32::NAN, |[_, mean, _]| mean);
        self.recent.insert(at, Moment { time_ms, values: SPARKS.map(mean) });
    }

    fn count(&mut self, time_ms: u64, all: &[f32; N_METRICS]) {
        if let Some(second) = self.second(time_ms, &[Part::NOTHING; N_METRICS]) {
            second.parts.iter_mut().zip(all).for_each(|(part, value)| part.take(*value));
        }
        while self.hour.len() > HOUR_POINTS_MAX {
            self.hour.pop_front();
        }
    }

    /// The second of the hour that a time is in, which begins as this where it is not there.
    fn second(&mut self, time_ms: u64, parts: &[Part; N_METRICS]) -> Option<&mut Second> {
        let time_ms = time_ms - time_ms % SECOND_MS;
        let at = self.hour.partition_point(|second| second.time_ms < time_ms);
        if self.hour.get(at).is_none_or(|second| second.time_ms != time_ms) {
            self.hour.insert(at, Second { time_ms, parts: *parts });
        }
        self.hour.get_mut(at)
    }
}

/// What is said of a card beside what it has a cell for: clock and fan, and what should not be. What it does not give has
/// a dash, and why.
pub fn facts(card: &Card) -> Vec<String> {
    let (sample, slow) = (card.sample.as_ref(), card.slow.as_ref());
    let mut facts = Vec::new();
    let mut add = |name: &str, reading: Option<&Reading<u64>>, said: &dyn Fn(u64) -> Option<String>| {
        facts.extend(match reading {
            Some(Reading::Is(value)) => said(*value),
            Some(Reading::Missing { missing }) => Some(say(&text::rig_missing(name, why(*missing)))),
            None => Some(say(&text::rig_missing(name, why(Why::NotYet)))),
        });
    };
    add(t(text::HISTORY_OF_CLOCK), sample.map(|sample| &sample.clock_sm_mhz), &|mhz| {
        Some(words::value(mhz as f64, 0, "MHz"))
    });
    add(t(text::RIG_FAN), slow.map(|slow| &slow.fan_percent), &|percent| {
        Some(format!("{} {}", t(text::RIG_FAN), words::value(percent as f64, 0, "%")))
    });
    // What slows a card is said beside this.
    add(t(text::RIG_THROTTLE), sample.map(|sample| &sample.throttle), &|_| None);
    add("ECC", slow.map(|slow| &slow.ecc_uncorrected), &|errors| {
        (errors > 0).then(|| say(&text::rig_ecc(format::grouped(errors))))
    });
    if card.gpu.mig_enabled.get() == Some(&true) {
        facts.push(t(text::RIG_MIG).to_owned());
    }
    facts
}

/// A metric of a sample, NaN where it is missing.
fn value(sample: &Sample, metric: Metric) -> f32 {
    let whole = |reading: &Reading<u64>| reading.get().map(|value| *value as f32);
    #[expect(clippy::cast_possible_truncation, reason = "watts to seven digits")]
    let power = sample.power_watts.get().map(|watts| *watts as f32);
    let value = match metric {
        Metric::MemoryUsed => whole(&sample.memory_used_bytes),
        Metric::Utilization => whole(&sample.utilization_percent),
        Metric::MemoryUtilization => whole(&sample.memory_utilization_percent),
        Metric::Power => power,
        Metric::Temperature => whole(&sample.temperature_celsius),
        Metric::ClockSm => whole(&sample.clock_sm_mhz),
        Metric::ClockMemory => whole(&sample.clock_memory_mhz),
        // What is read once a second is in no sample.
        _ => None,
    };
    value.filter(|value| value.is_finite()).unwrap_or(f32::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rig::sample::{gpu, sample, slow};

    const T: u64 = 1_795_000_000_000;

    #[test]
    fn a_day_at_ten_a_second_takes_no_more_than_an_hour() {
        let mut card = Card::new(gpu(0));
        // Every hundredth of a day's samples would do for the hour; two hours of all of them fill every bound.
        for tick in 0..72_000_u64 {
            card.take(T + tick * 100, &sample(0, tick % 97));
        }
        assert!(card.recent.len() <= RECENT_SAMPLES_MAX, "{}", card.recent.len());
        assert_eq!(card.recent.front().map(|moment| moment.time_ms), Some(T + 71_999 * 100 - RECENT_MS));
        assert_eq!(card.hour.len(), HOUR_POINTS_MAX);
        assert_eq!(card.hour.back().and_then(|second| second.parts[1].all()).map(|all| all[0] <= all[2]), Some(true));
    }

    #[test]
    fn what_was_missed_finds_its_place_and_nothing_is_counted_twice() {
        let mut card = Card::new(gpu(0));
        for tick in [0, 1, 2, 8, 9, 3, 4, 5, 6, 7, 7, 9] {
            card.take(T + tick * 100, &sample(0, tick));
        }
        let times: Vec<u64> = card.recent.iter().map(|moment| (moment.time_ms - T) / 100).collect();
        assert_eq!(times, (0..10).collect::<Vec<_>>());
        assert_eq!(card.hour.len(), 1);
        assert_eq!(card.hour[0].parts[1].n, 10);
        assert_eq!(card.hour[0].parts[1].all(), Some([0.0, 4.5, 9.0]));
        let newest = card.sample.expect("a sample").utilization_percent;
        assert_eq!(newest.get(), Some(&9), "the newest reading is the newest in time");
    }

    #[test]
    fn history_goes_before_samples_and_never_between_them() {
        let mut card = Card::new(gpu(0));
        card.take(T, &sample(0, 50));
        card.take(T + 100, &sample(0, 51));
        for second in [3, 2, 1, 0] {
            card.take_past(T - second * SECOND_MS, &past(1.0));
        }
        assert_eq!(card.recent.len(), 5, "{:?}", card.recent);
        assert!(card.recent.iter().is_sorted_by_key(|moment| moment.time_ms));
    }

    fn past(value: f32) -> [Part; N_METRICS] {
        [Part { min: value, max: value, sum: value, n: 1 }; N_METRICS]
    }

    #[test]
    fn what_history_had_not_written_yet_is_missing_until_it_is_asked_for_again() {
        // Wherever in a second the page is opened.
        for offset_ms in (0..1000).step_by(50) {
            let now_ms = T + 200_000 + offset_ms;
            let mut card = Card::new(gpu(0));
            let asked = card.missing(now_ms).expect("nothing is there");
            assert_eq!(asked.span_ms() % SECOND_MS, 0);
            assert!(asked.from_ms <= now_ms - RECENT_MS && asked.to_ms >= now_ms, "{asked:?}");
            // The writer is two seconds behind, and what follows comes live.
            let is_written = |time_ms: u64, by_ms: u64| time_ms < by_ms;
            let answer = |card: &mut Card, asked: Range, by_ms: u64| {
                let seconds = (asked.from_ms..asked.to_ms).step_by(1000);
                seconds
                    .filter(|time_ms| is_written(*time_ms, by_ms))
                    .for_each(|time_ms| card.take_past(time_ms, &past(1.0)));
            };
            card.take(now_ms, &sample(0, 50));
            answer(&mut card, asked, now_ms - 2500);
            (1..30).for_each(|tick| card.take(now_ms + tick * 100, &sample(0, 50)));
            let later_ms = now_ms + 3000;
            let hole = card.missing(later_ms).expect("two seconds");
            assert!(hole.from_ms < now_ms && now_ms <= hole.to_ms && hole.span_ms() <= 5000, "{hole:?}");
            answer(&mut card, hole, later_ms - 2500);
            assert_eq!(card.missing(later_ms), None);
            // One line in the sparkline, and no second left out of the hour.
            assert_eq!(crate::state::rig::spark::path(&card.recent, 0, 1e12).matches('M').count(), 1);
            let seconds: Vec<u64> = card.hour.iter().map(|second| second.time_ms).collect();
            assert!(seconds.windows(2).all(|two| two[1] == two[0] + SECOND_MS), "{seconds:?}");
        }
    }

    #[test]
    fn nothing_is_missing_where_samples_are_late_and_all_of_it_after_a_night() {
        let mut card = Card::new(gpu(0));
        for tick in 0..100 {
            card.take(T + tick * BRIDGED_MS, &sample(0, 1));
        }
        let newest_ms = T + 99 * BRIDGED_MS;
        assert_eq!(card.missing(newest_ms + BRIDGED_MS), None);
        assert_eq!(card.missing(newest_ms - 1000), None, "a clock that is behind");
        let night_ms = newest_ms + 36_000_000;
        assert_eq!(card.missing(night_ms), Some(Range { from_ms: night_ms - RECENT_MS, to_ms: night_ms }));
    }

    #[test]
    fn what_a_card_does_not_give_is_a_dash_with_its_reason() {
        let told = |card: &Card| facts(card).join(" · ").replace(words::BLANK, " ");
        let mut card = Card::new(gpu(0));
        assert!(told(&card).matches("not read yet").count() == 4, "{}", told(&card));
        (card.sample, card.slow) = (Some(sample(0, 50)), slow(&[(0, 1, None, None)]).gpus.pop());
        assert_eq!(told(&card), "2,475 MHz · Fan 40 % · ECC – (not on this card)");
        let read = card.slow.as_mut().expect("it is read");
        read.ecc_uncorrected = Reading::Is(0);
        read.fan_percent = Reading::missing(Why::NotSupported);
        card.sample.as_mut().expect("it is read").throttle = Reading::missing(Why::NoPermission);
        assert_eq!(told(&card), "2,475 MHz · Fan – (not on this card) · Throttling – (no permission)");
    }

    #[test]
    fn a_missing_reading_is_no_zero() {
        let mut card = Card::new(gpu(0));
        let mut missing = sample(0, 50);
        missing.power_watts = Reading::missing(Why::NotSupported);
        card.take(T, &missing);
        assert!(card.recent[0].values[2].is_nan());
        assert_eq!(card.hour[0].parts[3].all(), None);
    }
}
