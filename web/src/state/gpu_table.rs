//! One run on every GPU of the table.

use headroom_planner::{
    hardware::{Segment, search},
    plan::Fit,
    session::Options,
    survey::{self, GpuRow, Summary},
};
use headroom_text::{Text, units};

use super::{answer::PlannedSession, format};
use crate::text;

/// Plans the run on GPUs of the table, from the index `start`, at most `n` of them. A text that is no run has no rows.
pub fn rows(answer: &PlannedSession, options: &Options, start: usize, n: usize) -> Vec<GpuRow> {
    let end = if answer.reading.is_run() { start.saturating_add(n).min(survey::n_gpus()) } else { start };
    survey::gpus(&answer.resolved.settings, options, start..end)
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
    /// The iteration with the least energy first.
    Energy,
}

impl Order {
    /// All orders, as the page lists them.
    pub const ALL: [Self; 4] = [Self::Popularity, Self::Memory, Self::Time, Self::Energy];

    /// Name in the address of the page.
    const fn name(self) -> &'static str {
        match self {
            Self::Popularity => "popularity",
            Self::Memory => "memory",
            Self::Time => "time",
            Self::Energy => "energy",
        }
    }
}

/// The kinds of machines, as the page lists them.
pub const SEGMENTS: [Segment; 4] = [Segment::Desktop, Segment::Laptop, Segment::Workstation, Segment::DataCentre];

impl Filter {
    /// Names of the parts of a query: the typed text, the kind, the order, and whether only GPUs that fit are shown.
    pub const PARTS: [&str; 4] = ["search", "kind", "order", "fits"];

    /// The filter with the given parts of a query. An unknown value counts as absent.
    pub fn of_parts([typed, kind, order, fits]: [Option<String>; 4]) -> Self {
        Self {
            typed: typed.unwrap_or_default(),
            segment: SEGMENTS.into_iter().find(|segment| kind.as_deref() == Some(segment.name())),
            only_fitting: fits.is_some(),
            order: Order::ALL.into_iter().find(|of| order.as_deref() == Some(of.name())).unwrap_or_default(),
        }
    }

    /// The parts of a query that [`Filter::of_parts`] reads. Default values are absent.
    pub fn parts(&self) -> [Option<String>; 4] {
        let order = Some(self.order).filter(|order| *order != Order::default());
        [
            Some(self.typed.clone()).filter(|typed| !typed.is_empty()),
            self.segment.map(|segment| segment.name().to_owned()),
            order.map(|order| order.name().to_owned()),
            self.only_fitting.then(|| "1".to_owned()),
        ]
    }

    /// Whether rows are left out whose run may fit: the typed text and the kind limit the GPUs.
    pub fn limits_gpus(&self) -> bool {
        !self.typed.trim().is_empty() || self.segment.is_some()
    }
}

/// Numbers of the GPUs that the typed text and the kind leave, and of those on which the run fits.
pub fn counts(rows: &[GpuRow], filter: &Filter) -> (usize, usize) {
    let left = shown(rows, &Filter { only_fitting: false, ..filter.clone() });
    (left.len(), left.iter().filter(|row| fits(row)).count())
}

/// The rows that the filter shows: those on which the run fits first, each group in the filter's order.
pub fn shown(rows: &[GpuRow], filter: &Filter) -> Vec<GpuRow> {
    let found: Vec<&str> = search(&filter.typed).into_iter().map(|(_, device)| &*device.name).collect();
    let is_shown = |row: &&GpuRow| {
        filter.segment.is_none_or(|segment| segment == row.segment)
            && (!filter.only_fitting || fits(row))
            && found.contains(&&*row.device.name)
    };
    let mut shown: Vec<GpuRow> = rows.iter().filter(is_shown).cloned().collect();
    match filter.order {
        Order::Popularity => {}
        Order::Memory => shown.sort_by_key(|row| row.device.total_bytes),
        Order::Time => sort_by_figure(&mut shown, |summary| summary.iteration_seconds),
        Order::Energy => sort_by_figure(&mut shown, |summary| summary.max_iteration_watt_hours),
    }
    // A list that starts with GPUs on which the run fails hides the answer.
    shown.sort_by_key(|row| !fits(row));
    shown
}

/// Sorts rows by a figure, the least first. A row without the figure comes last.
fn sort_by_figure(rows: &mut [GpuRow], figure: fn(&Summary) -> Option<f64>) {
    let of = |row: &GpuRow| row.summary.as_ref().and_then(figure).unwrap_or(f64::INFINITY);
    rows.sort_by(|one, other| of(one).total_cmp(&of(other)));
}

/// Whether the run fits, at least narrowly.
fn fits(row: &GpuRow) -> bool {
    row.summary.is_some_and(|summary| summary.fit != Fit::Fails)
}

/// The outcome in words.
pub fn words(summary: &Summary) -> Text {
    let left = || format::signed_size(summary.headroom_bytes);
    match summary.fit {
        Fit::Fits => text::fits(left()),
        Fit::Narrow => text::fits_narrowly(left()),
        Fit::Fails => text::does_not_fit(format::size(summary.headroom_bytes.unsigned_abs())),
    }
}

/// A time with three digits.
pub fn time(seconds: f64) -> String {
    quantity(units::time_parts(seconds))
}

/// The energy of 1,000 iterations, with three digits.
pub fn energy(iteration_watt_hours: f64) -> String {
    quantity(units::energy_parts(iteration_watt_hours * 1e3))
}

fn quantity((number, unit): (String, &str)) -> String {
    format!("{} {unit}", text::table().number(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{session::Session, verdict::Verdict};

    fn all(text: &str) -> Vec<GpuRow> {
        let session = Session { text: text.into(), ..Session::default() };
        rows(&PlannedSession::of(&session), &session.options, 0, usize::MAX)
    }

    #[test]
    fn each_gpu_has_the_verdict_of_the_calculator() {
        let text = "batch_size = 12\n";
        let rows = all(text);
        assert_eq!(rows.len(), survey::n_gpus());
        for row in rows.iter().step_by(7) {
            let mut session = Session { text: text.into(), ..Session::default() };
            session.options = session.options.with_device(row.device);
            let verdict = Verdict::of_answer(&PlannedSession::of(&session)).expect("a plan");
            let summary = row.summary.expect("a plan");
            assert_eq!((summary.fit, summary.headroom_bytes), (verdict.fit, verdict.headroom_bytes));
        }
    }

    #[test]
    fn text_without_a_run_has_no_plan_on_any_gpu() {
        assert_eq!(all("hello there"), []);
        for text in ["compile = maybe", "python train.py config/mine.py"] {
            let rows = all(text);
            assert_eq!(rows.len(), survey::n_gpus(), "{text}");
            assert!(rows.iter().all(|row| row.summary.is_none()), "{text}");
        }
    }

    #[test]
    fn a_filter_is_read_from_its_own_parts() {
        for filter in [
            Filter::default(),
            Filter { typed: "12 GB".into(), segment: Some(Segment::DataCentre), ..Filter::default() },
            Filter { only_fitting: true, order: Order::Energy, ..Filter::default() },
        ] {
            assert_eq!(Filter::of_parts(filter.parts()), filter);
        }
        assert_eq!(Filter::default().parts(), [None, None, None, None]);
        assert_eq!(Filter::of_parts([None, Some("fridge".into()), Some("price".into()), None]), Filter::default());
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
        assert!(fitting.iter().all(fits) && fitting.len() < rows.len());
        assert_eq!(counts(&rows, &Filter { only_fitting: true, ..Filter::default() }), (rows.len(), fitting.len()));
        let of_laptops = counts(&rows, &Filter { segment: Some(Segment::Laptop), ..Filter::default() });
        assert_eq!(of_laptops.0, laptops.len());
        for order in Order::ALL {
            let shown = shown(&rows, &Filter { order, ..Filter::default() });
            assert!(shown.is_sorted_by_key(|row| !fits(row)), "{order:?}");
            for group in shown.chunk_by(|one, other| fits(one) == fits(other)) {
                let seconds = |row: &GpuRow| row.summary.and_then(|summary| summary.iteration_seconds);
                let energy = |row: &GpuRow| row.summary.and_then(|summary| summary.max_iteration_watt_hours);
                match order {
                    Order::Popularity => {}
                    Order::Memory => assert!(group.is_sorted_by_key(|row| row.device.total_bytes)),
                    Order::Time => assert_least_first(group, seconds),
                    Order::Energy => assert_least_first(group, energy),
                }
            }
        }
    }

    /// Checks that rows are sorted by a figure, and that rows without it come last.
    fn assert_least_first(rows: &[GpuRow], figure: impl Fn(&GpuRow) -> Option<f64>) {
        let known: Vec<f64> = rows.iter().map_while(&figure).collect();
        assert!(known.is_sorted() && known.len() > 10, "{}", known.len());
        assert!(rows[known.len()..].iter().all(|row| figure(row).is_none()));
    }
}
