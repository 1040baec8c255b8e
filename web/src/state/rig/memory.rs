//! The memory of a run's GPU over the run: fetched history, live readings, and the plan's peak.

use std::collections::VecDeque;

use headroom_protocol::{
    history::{History, Series},
    metric::Metric,
};

use super::{
    Rig,
    gpu::{Part, SECOND_MS, Second},
    processes::predicted_bytes,
};
use crate::state::rig_charts::{
    plot::{Frame, PlannedPeak, Plot},
    reading::summary,
};

/// The index of used memory in a history and in a second. It is the first, so a history with this metric alone has the
/// same index.
const PLACE: usize = 0;
const _: () = assert!(matches!(Metric::FAST[PLACE], Metric::MemoryUsed));

/// A run's memory chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunMemory {
    /// The drawing.
    pub plot: Plot,
    /// The drawing in words.
    pub said: String,
}

impl RunMemory {
    /// The chart of a run; `None` if its GPU is unknown.
    pub fn of(rig: &Rig, id: &str, history: Option<&History>, frame: &Frame) -> Option<Self> {
        let run = &rig.runs.iter().find(|watched| watched.run.id == id)?.run;
        let gpu = rig.gpu(run.gpus.first()?)?;
        // The drawing shows the whole GPU, so the share of other processes is added below the plan's. After the run has
        // ended, their share during the run is unknown.
        let with_others = predicted_bytes(rig, gpu).filter(|_| !run.status.has_ended());
        let peak = with_others.or_else(|| Some(run.plan.as_ref()?.peak_bytes));
        let planned = peak.map(|bytes| PlannedPeak { bytes, from_ms: run.started_ms });
        let history = recorded(history, &gpu.hour);
        Some(Self {
            plot: Plot::of(Some(&history), Some(&gpu.info), planned, frame),
            said: summary(Some(&history), frame.chart, frame.range, frame.zone).sentence(),
        })
    }
}

/// A history of used memory alone: the fetched history, then the live seconds from its end. Finer history is folded
/// into seconds, because a gap is detected by the width of a point, which must be uniform.
pub fn recorded(history: Option<&History>, hour: &VecDeque<Second>) -> History {
    let mut points: Vec<(u64, [f64; 3])> = Vec::new();
    let mut n = 0.0;
    let mut add = |time_ms: u64, [least, value, greatest]: [f64; 3]| match points.last_mut() {
        Some((last_ms, [min, mean, max])) if *last_ms == time_ms => {
            n += 1.0;
            *mean += (value - *mean) / n;
            (*min, *max) = (min.min(least), max.max(greatest));
        }
        _ => {
            points.push((time_ms, [least, value, greatest]));
            n = 1.0;
        }
    };
    let fetched_ms = history.map_or(SECOND_MS, |history| history.step_ms);
    let step_ms = fetched_ms.max(SECOND_MS);
    let mut end_ms = 0;
    for (at, time_ms) in history.iter().flat_map(|history| history.times_ms.iter().enumerate()) {
        // The second in which it ends continues with live readings.
        let of_second = time_ms - time_ms % SECOND_MS;
        let (time_ms, next_ms) =
            if fetched_ms < SECOND_MS { (of_second, of_second) } else { (*time_ms, time_ms.saturating_add(step_ms)) };
        end_ms = next_ms;
        let Some(series) = history.and_then(|history| history.series.get(PLACE)) else { continue };
        let of = |values: &[Option<f64>]| values.get(at).copied().flatten();
        if let Some(mean) = of(&series.mean) {
            add(time_ms, [of(&series.min).unwrap_or(mean), mean, of(&series.max).unwrap_or(mean)]);
        }
    }
    for second in hour.iter().filter(|second| second.time_ms >= end_ms) {
        if let Some(all) = second.parts.get(PLACE).and_then(Part::all) {
            add(second.time_ms, all.map(f64::from));
        }
    }
    let of = |which: usize| points.iter().map(|(_, all)| Some(all[which])).collect();
    let series = Series { min: of(0), mean: of(1), max: of(2) };
    let times_ms = points.iter().map(|(time_ms, _)| *time_ms).collect();
    History { gpu: String::new(), from_ms: 0, to_ms: 0, step_ms, times_ms, series: vec![series] }
}

#[cfg(test)]
mod tests {
    use headroom_protocol::ServerMessage;

    use super::*;
    use crate::state::{
        rig::{
            gpu::MonitoredGpu,
            sample::{T, gpu, hello, run, sample},
        },
        rig_charts::{axis::Chart, fold::columns, view::Range, zone::UtcOffset},
    };

    fn fetched(step_ms: u64, values: &[Option<f64>]) -> History {
        let series = Series { min: values.to_vec(), mean: values.to_vec(), max: values.to_vec() };
        let times_ms = (0..values.len() as u64).map(|at| T + at * step_ms).collect();
        History { gpu: "GPU-0".into(), from_ms: T, to_ms: T, step_ms, times_ms, series: vec![series; 7] }
    }

    #[test]
    fn live_seconds_continue_history_without_duplicates() {
        let mut gpu = MonitoredGpu::new(gpu(0));
        for second in 250..400 {
            gpu.take(T + second * 1000, &sample(0, 90));
        }
        let all = recorded(Some(&fetched(10_000, &[Some(1.0); 30])), &gpu.hour);
        assert_eq!(all.times_ms.len(), 30 + 100);
        assert!(all.times_ms.is_sorted_by(|a, b| a < b));
        assert_eq!((all.series[0].mean[29], all.series[0].max[30]), (Some(1.0), Some((7_u64 << 30) as f64)));
        assert_eq!(recorded(None, &gpu.hour).times_ms.len(), 150);
        assert!(recorded(None, &VecDeque::new()).times_ms.is_empty());
    }

    #[test]
    fn fetched_and_live_points_form_one_line() {
        for step_ms in [100, 200, 500, 1000, 2000, 10_000] {
            let n_points = 20_000 / step_ms;
            let mut gpu = MonitoredGpu::new(gpu(0));
            for tick in 200..500 {
                gpu.take(T + tick * 100, &sample(0, 90));
            }
            let values: Vec<_> = (0..n_points).map(|_| Some((7_u64 << 30) as f64)).collect();
            let all = recorded(Some(&fetched(step_ms, &values)), &gpu.hour);
            let range = Range { from_ms: T, to_ms: T + 60_000 };
            let stretches = columns(&all, Metric::MemoryUsed, range, 600);
            assert_eq!(stretches.len(), 1, "{step_ms} ms: {stretches:?}");
            assert!(all.times_ms.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn a_second_that_history_and_the_stream_share_has_what_both_saw() {
        let mut gpu = MonitoredGpu::new(gpu(0));
        gpu.take(T + 700, &sample(0, 90));
        let all = recorded(Some(&fetched(100, &[Some(2.0), Some(4.0)])), &gpu.hour);
        assert_eq!((all.step_ms, all.times_ms.as_slice()), (SECOND_MS, [T].as_slice()));
        assert_eq!((all.series[0].min[0], all.series[0].max[0]), (Some(2.0), Some((7_u64 << 30) as f64)));
    }

    #[test]
    fn a_run_s_memory_is_drawn_against_its_plan() {
        let mut rig = Rig::default();
        rig.hear(ServerMessage::Hello(Box::new(hello(1, vec![run("a")], 0))), false);
        rig.gpus[0].take(T + 10_000, &sample(0, 50));
        let range = Range { from_ms: T, to_ms: T + 60_000 };
        let frame = Frame { range, chart: Chart::Memory, width_px: 500.0, zone: UtcOffset(|_| 0) };
        let drawn = RunMemory::of(&rig, "a", None, &frame).expect("it is on a GPU");
        assert!(!drawn.plot.is_empty && drawn.plot.limits.len() == 2, "{drawn:?}");
        assert!(drawn.said.contains("7.00"), "{}", drawn.said);
        assert_eq!(RunMemory::of(&rig, "b", None, &frame), None);
        rig.gpus.clear();
        assert_eq!(RunMemory::of(&rig, "a", None, &frame), None);
    }

    #[test]
    fn short_or_stepless_history_is_accepted() {
        let mut gpu = MonitoredGpu::new(gpu(0));
        gpu.take(T + 60_000, &sample(0, 90));
        let mut short = fetched(0, &[Some(1.0), None, Some(2.0)]);
        short.series[0].min.clear();
        let all = recorded(Some(&short), &gpu.hour);
        let Series { min, mean, max } = &all.series[0];
        assert_eq!([all.times_ms.len(), min.len(), mean.len(), max.len()], [all.times_ms.len(); 4]);
        short.series.clear();
        assert_eq!(recorded(Some(&short), &gpu.hour).series[0].mean.iter().flatten().count(), 1);
    }
}
