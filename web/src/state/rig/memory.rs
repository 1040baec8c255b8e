//! The memory of a run's card over the run: history as it was fetched, what came live since, and the plan's peak.

use std::collections::VecDeque;

use headroom_shared::protocol::history::{History, Metric, Series};

use super::{
    Rig,
    card::{Part, SECOND_MS, Second},
    processes::predicted_bytes,
};
use crate::state::rig_charts::{
    plot::{Frame, Planned, Plot},
    reading::summary,
};

/// The place of used memory in a history and in a second: the first, so that a history of it alone is one too.
const PLACE: usize = 0;
const _: () = assert!(matches!(Metric::FAST[PLACE], Metric::MemoryUsed));

/// What a run's chart of memory shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunMemory {
    /// The drawing.
    pub plot: Plot,
    /// It in words.
    pub said: String,
}

impl RunMemory {
    /// Of a run; nothing where no card is known that it is on.
    pub fn of(rig: &Rig, id: &str, history: Option<&History>, frame: &Frame) -> Option<Self> {
        let run = &rig.runs.iter().find(|watched| watched.run.id == id)?.run;
        let card = rig.card(run.gpus.first()?)?;
        // What is drawn is the whole card's: the share of others stands below the plan's. Once the run has ended, nobody
        // knows what others had while it went on.
        let with_others = predicted_bytes(rig, card).filter(|_| !run.status.has_ended());
        let peak = with_others.or_else(|| Some(run.plan.as_ref()?.peak_bytes));
        let planned = peak.map(|bytes| Planned { bytes, from_ms: run.started_ms });
        let history = recorded(history, &card.hour);
        Some(Self {
            plot: Plot::of(Some(&history), Some(&card.gpu), planned, frame),
            said: summary(Some(&history), frame.kind, frame.range, frame.zone).sentence(),
        })
    }
}

/// A history of used memory alone, as far as it was fetched, and of the live seconds from where that ends.
pub fn recorded(history: Option<&History>, hour: &VecDeque<Second>) -> History {
    let mut times_ms = history.map(|history| history.times_ms.clone()).unwrap_or_default();
    let mut series = history.and_then(|history| history.series.get(PLACE).cloned()).unwrap_or_default();
    let Series { min, mean, max } = &mut series;
    for values in [&mut *min, &mut *mean, &mut *max] {
        values.resize(times_ms.len(), None);
    }
    let step_ms = history.map_or(SECOND_MS, |history| history.step_ms.max(1));
    let end_ms = times_ms.last().map_or(0, |time_ms| time_ms.saturating_add(step_ms));
    for second in hour.iter().filter(|second| second.time_ms >= end_ms) {
        if let Some(all) = second.parts.get(PLACE).and_then(Part::all) {
            times_ms.push(second.time_ms);
            for (values, value) in [&mut *min, &mut *mean, &mut *max].into_iter().zip(all) {
                values.push(Some(f64::from(value)));
            }
        }
    }
    History { gpu: String::new(), from_ms: 0, to_ms: 0, step_ms, times_ms, series: vec![series] }
}

#[cfg(test)]
mod tests {
    use headroom_shared::protocol::ServerMessage;

    use super::*;
    use crate::state::{
        rig::{
            card::Card,
            sample::{T, gpu, hello, run, sample},
        },
        rig_charts::{kind::Kind, view::Range, zone::Zone},
    };

    fn fetched(step_ms: u64, values: &[Option<f64>]) -> History {
        let series = Series { min: values.to_vec(), mean: values.to_vec(), max: values.to_vec() };
        let times_ms = (0..values.len() as u64).map(|at| T + at * step_ms).collect();
        History { gpu: "GPU-0".into(), from_ms: T, to_ms: T, step_ms, times_ms, series: vec![series; 7] }
    }

    #[test]
    fn live_seconds_go_on_where_history_ends_and_nothing_is_there_twice() {
        let mut card = Card::new(gpu(0));
        for second in 250..400 {
            card.take(T + second * 1000, &sample(0, 90));
        }
        let all = recorded(Some(&fetched(10_000, &[Some(1.0); 30])), &card.hour);
        assert_eq!(all.times_ms.len(), 30 + 100);
        assert!(all.times_ms.is_sorted_by(|a, b| a < b));
        assert_eq!((all.series[0].mean[29], all.series[0].max[30]), (Some(1.0), Some((7_u64 << 30) as f64)));
        assert_eq!(recorded(None, &card.hour).times_ms.len(), 150);
        assert!(recorded(None, &VecDeque::new()).times_ms.is_empty());
    }

    #[test]
    fn a_run_s_memory_is_drawn_against_its_plan() {
        let mut rig = Rig::default();
        rig.hear(ServerMessage::Hello(Box::new(hello(1, vec![run("a")], 0))), false);
        rig.cards[0].take(T + 10_000, &sample(0, 50));
        let range = Range { from_ms: T, to_ms: T + 60_000 };
        let frame = Frame { range, kind: Kind::Memory, width_px: 500.0, zone: Zone(|_| 0) };
        let drawn = RunMemory::of(&rig, "a", None, &frame).expect("it is on a card");
        assert!(!drawn.plot.is_empty && drawn.plot.limits.len() == 2, "{drawn:?}");
        assert!(drawn.said.contains("7.00"), "{}", drawn.said);
        assert_eq!(RunMemory::of(&rig, "b", None, &frame), None);
        rig.cards.clear();
        assert_eq!(RunMemory::of(&rig, "a", None, &frame), None);
    }

    #[test]
    fn a_history_that_is_too_short_or_has_no_step_is_no_trouble() {
        let mut card = Card::new(gpu(0));
        card.take(T + 60_000, &sample(0, 90));
        let mut short = fetched(0, &[Some(1.0), None, Some(2.0)]);
        short.series[0].min.clear();
        let all = recorded(Some(&short), &card.hour);
        let Series { min, mean, max } = &all.series[0];
        assert_eq!([all.times_ms.len(), min.len(), mean.len(), max.len()], [all.times_ms.len(); 4]);
        short.series.clear();
        assert_eq!(recorded(Some(&short), &card.hour).series[0].mean.iter().flatten().count(), 1);
    }
}
