//! One run on every GPU of the table.

use headroom_planner::{
    compute::step_seconds,
    hardware::{CLOUD_GPUS, Device, Segment, by_popularity, find, search},
    plan::{Plan, plan},
    session::{Options, resolve_settings},
};
use headroom_text::{Text, decimal};

use super::{answer::PlannedSession, format, verdict::Outcome};
use crate::text;

/// A run on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuRow {
    /// The GPU.
    pub device: &'static Device,
    /// The kind of machine that it is sold for.
    pub segment: Segment,
    /// The outcome; `None` if the run has no plan on this GPU.
    pub outcome: Option<Outcome>,
    /// The memory left at the peak, in bytes; negative if bytes are missing.
    pub headroom_bytes: i64,
    /// The bounds of that memory.
    pub band_bytes: [i64; 2],
    /// The estimated time of an iteration, if the GPU's rates are known.
    pub seconds: Option<f64>,
    /// The cloud machines with this GPU.
    pub clouds: Vec<&'static str>,
}

/// The number of GPUs in the table.
pub fn n_gpus() -> usize {
    by_popularity().count()
}

/// Plans the run on GPUs of the table, from the index `start`, at most `n` of them.
pub fn rows(answer: &PlannedSession, options: &Options, start: usize, n: usize) -> Vec<GpuRow> {
    by_popularity().skip(start).take(n).map(|(segment, device)| row(answer, options, segment, device)).collect()
}

fn row(answer: &PlannedSession, options: &Options, segment: Segment, device: &'static Device) -> GpuRow {
    let options = on_gpu(options, device);
    let request = resolve_settings(answer.resolved.settings.clone(), &options).request;
    let request = request.filter(|_| answer.reading.is_run());
    let seconds = request.as_ref().and_then(step_seconds);
    let plan = request.and_then(|request| plan(request).ok());
    let is_of_device = |of: &str| find(of).is_ok_and(|found| found.name == device.name);
    GpuRow {
        device,
        segment,
        outcome: plan.as_ref().map(Outcome::of),
        headroom_bytes: plan.as_ref().map_or(0, |plan| plan.headroom_bytes),
        band_bytes: plan.as_ref().map_or([0, 0], Plan::headroom_band_bytes),
        seconds: seconds.filter(|_| plan.is_some()),
        clouds: CLOUD_GPUS.iter().filter(|rented| is_of_device(rented.device)).map(|rented| rented.label).collect(),
    }
}

/// The options of the same run on another GPU.
pub fn on_gpu(options: &Options, device: &Device) -> Options {
    Options { gpu: device.name.to_string(), vram_bytes: None, ..options.clone() }
}

/// Which rows are shown, and their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Part of a name, or a size of memory.
    pub typed: String,
    /// The kind of machine; `None` for all.
    pub segment: Option<Segment>,
    /// Whether GPUs on which the run does not fit are left out.
    pub only_fitting: bool,
    /// The order.
    pub order: Order,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The most common GPUs first.
    #[default]
    Popularity,
    /// The GPU with the least memory first.
    Memory,
    /// The shortest iteration first.
    Time,
}

impl Order {
    /// All orders, as the page lists them.
    pub const ALL: [Self; 3] = [Self::Popularity, Self::Memory, Self::Time];
}

/// The rows that the filter shows, in its order.
pub fn shown(rows: &[GpuRow], filter: &Filter) -> Vec<GpuRow> {
    let found: Vec<&str> = search(&filter.typed).into_iter().map(|(_, device)| &*device.name).collect();
    let is_shown = |row: &&GpuRow| {
        filter.segment.is_none_or(|segment| segment == row.segment)
            && (!filter.only_fitting || row.fits())
            && found.contains(&&*row.device.name)
    };
    let mut shown: Vec<GpuRow> = rows.iter().filter(is_shown).cloned().collect();
    match filter.order {
        Order::Popularity => {}
        Order::Memory => shown.sort_by_key(|row| row.device.total_bytes),
        // Without known rates, a GPU comes last.
        Order::Time => {
            let seconds = |row: &GpuRow| row.seconds.unwrap_or(f64::INFINITY);
            shown.sort_by(|one, other| seconds(one).total_cmp(&seconds(other)));
        }
    }
    shown
}

impl GpuRow {
    /// Whether the run fits, at least narrowly.
    pub fn fits(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Fits | Outcome::Narrow))
    }

    /// The outcome in words.
    pub fn words(&self) -> Text {
        match self.outcome {
            Some(Outcome::Fits) => text::fits(format::signed_size(self.headroom_bytes)),
            Some(Outcome::Narrow) => text::fits_narrowly(format::signed_size(self.headroom_bytes)),
            Some(Outcome::Fails) => text::does_not_fit(format::size(self.headroom_bytes.unsigned_abs())),
            None => text::NO_PLAN.into(),
        }
    }

    /// The time of an iteration, with three digits.
    pub fn time(&self) -> Option<String> {
        self.seconds.map(time)
    }
}

fn time(seconds: f64) -> String {
    let (value, unit) = if seconds < 0.9995 { (seconds * 1e3, "ms") } else { (seconds, "s") };
    let decimals = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{} {unit}", text::table().number(&decimal::fixed(value, decimals)))
}

/// The number of GPUs that the run fits with certainty, and the one with the least memory among them.
pub fn summary(rows: &[GpuRow]) -> (usize, Option<&GpuRow>) {
    let certain = || rows.iter().filter(|row| row.outcome == Some(Outcome::Fits));
    (certain().count(), certain().min_by_key(|row| row.device.total_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::session::Session;
    use headroom_planner::hardware::devices;

    fn all(text: &str) -> Vec<GpuRow> {
        let session = Session { text: text.into(), ..Session::default() };
        rows(&PlannedSession::of(&session), &session.options, 0, usize::MAX)
    }

    #[test]
    fn each_gpu_has_the_verdict_of_the_calculator() {
        let text = "batch_size = 12\n";
        let rows = all(text);
        assert_eq!(rows.len(), devices().len());
        assert_eq!(n_gpus(), rows.len());
        for row in rows.iter().step_by(7) {
            let mut session = Session { text: text.into(), ..Session::default() };
            session.options = on_gpu(&session.options, row.device);
            let answer = PlannedSession::of(&session);
            let verdict = crate::state::verdict::Verdict::of_answer(&answer);
            assert_eq!(row.outcome, verdict.as_ref().map(|verdict| verdict.outcome), "{}", row.device.name);
            assert_eq!(Some(row.headroom_bytes), verdict.map(|verdict| verdict.headroom_bytes), "{}", row.device.name);
        }
        let outcomes = |outcome| rows.iter().filter(|row| row.outcome == Some(outcome)).count();
        assert!(outcomes(Outcome::Fits) > 20 && outcomes(Outcome::Fails) > 10);
    }

    #[test]
    fn text_without_a_run_has_no_plan_on_any_gpu() {
        for text in ["hello there", "compile = maybe", "python train.py config/mine.py"] {
            assert!(all(text).iter().all(|row| row.outcome.is_none() && row.seconds.is_none()), "{text}");
        }
    }

    #[test]
    fn smallest_gpu_is_one_on_which_the_run_fits_with_certainty() {
        let rows = all("batch_size = 12\n");
        let (n, smallest) = summary(&rows);
        let smallest = smallest.expect("it fits large GPUs");
        assert!(smallest.band_bytes[0] >= 0);
        assert!(
            n > 0
                && rows
                    .iter()
                    .filter(|row| row.device.total_bytes < smallest.device.total_bytes)
                    .all(|row| row.outcome != Some(Outcome::Fits))
        );
        assert_eq!(summary(&all("batch_size = 100000\n")), (0, None));
    }

    #[test]
    fn rows_are_filtered_and_ordered() {
        let rows = all("batch_size = 12\n");
        let names = |filter: Filter| shown(&rows, &filter).iter().map(|row| &*row.device.name).collect::<Vec<_>>();
        assert_eq!(names(Filter::default()).len(), rows.len());
        let laptops = names(Filter { segment: Some(Segment::Laptop), ..Filter::default() });
        assert!(!laptops.is_empty() && laptops.len() < rows.len());
        assert_eq!(names(Filter { typed: "12 GB".into(), ..Filter::default() }).len(), 13);
        let fitting = shown(&rows, &Filter { only_fitting: true, ..Filter::default() });
        assert!(fitting.iter().all(GpuRow::fits) && fitting.len() < rows.len());
        let by_memory = shown(&rows, &Filter { order: Order::Memory, ..Filter::default() });
        assert!(by_memory.is_sorted_by_key(|row| row.device.total_bytes));
        let by_time = shown(&rows, &Filter { order: Order::Time, ..Filter::default() });
        let known: Vec<f64> = by_time.iter().map_while(|row| row.seconds).collect();
        assert!(known.is_sorted() && known.len() > 50, "{}", known.len());
        assert!(by_time[known.len()..].iter().all(|row| row.seconds.is_none()));
    }

    #[test]
    fn times_have_three_digits() {
        for (seconds, words) in
            [(0.0123, "12.3 ms"), (0.9999, "1.00 s"), (1.5, "1.50 s"), (12.34, "12.3 s"), (123.4, "123 s")]
        {
            assert_eq!(time(seconds), words);
        }
    }
}
