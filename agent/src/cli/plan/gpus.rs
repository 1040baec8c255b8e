//! `headroom plan --gpu all`: one run on every known GPU, as a table or as JSON.

use std::{num::NonZero, thread};

use headroom_planner::{
    nanogpt::Settings,
    plan::Fit,
    session::Options,
    survey::{self, GpuRow, Summary, smallest},
    trainers::Run,
};
use headroom_text::{
    self as text,
    units::{energy_parts, human_size, time_parts},
};
use serde::Serialize;

use crate::cli::style::{Ink, Style};

/// Version of the JSON schema.
const SCHEMA: u32 = 1;

/// Width of the table without the names, with the longest result.
const OTHER_COLUMNS: usize = 55;

/// Width of the column of times.
const TIME_COLUMNS: usize = 11;

/// Width of the column of energies.
const ENERGY_COLUMNS: usize = 11;

/// Width of a terminal from which the table shows energies. A narrower one needs the space for names.
const COLUMNS_WITH_ENERGY: usize = 100;

/// What the column of energies means.
const ENERGY_NOTE: &str = "Energy: upper bound for 1,000 iterations at the power limit of one board. The rest of \
                           the machine is not counted.\n";

/// JSON output.
#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: u32,
    /// Number of GPUs that the run fits with certainty.
    n_fit: usize,
    /// The one with the least memory among them.
    smallest: Option<&'a str>,
    gpus: Vec<Row<'a>>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    name: &'a str,
    segment: &'static str,
    clouds: &'a [&'static str],
    total_bytes: u64,
    /// `fits`, `narrow` or `fails`; null without a plan.
    outcome: Option<&'static str>,
    headroom_bytes: Option<i64>,
    headroom_band_bytes: Option<[i64; 2]>,
    iteration_seconds: Option<f64>,
    board_power_watts: Option<u16>,
    /// Energy at most: the estimated time at the board's power limit.
    max_iteration_watt_hours: Option<f64>,
}

impl<'a> From<&'a GpuRow> for Row<'a> {
    fn from(row: &'a GpuRow) -> Self {
        Self {
            name: &row.device.name,
            segment: row.segment.name(),
            clouds: &row.clouds,
            total_bytes: row.device.total_bytes,
            outcome: row.summary.map(|summary| summary.fit.name()),
            headroom_bytes: row.summary.map(|summary| summary.headroom_bytes),
            headroom_band_bytes: row.summary.map(|summary| summary.band_bytes),
            iteration_seconds: row.summary.and_then(|summary| summary.iteration_seconds),
            board_power_watts: row.device.board_power().map(|power| power.watts),
            max_iteration_watt_hours: row.summary.and_then(|summary| summary.max_iteration_watt_hours),
        }
    }
}

/// Plans the run on every known GPU. Returns the table or the JSON, and whether the run fits any of them.
pub fn answer(settings: &Settings, options: &Options, json: bool) -> Result<(String, bool), serde_json::Error> {
    answer_of(&survey::gpus(settings, options, 0..survey::n_gpus()), json)
}

/// Plans a run of another trainer on every known GPU, with a thread for each core. Returns the table or the JSON, and whether
/// the run fits any of them.
pub fn trainer_answer(run: &Run, options: &Options, json: bool) -> Result<(String, bool), serde_json::Error> {
    let n_gpus = survey::n_gpus();
    let n_threads = thread::available_parallelism().map_or(1, NonZero::get);
    let n = n_gpus.div_ceil(n_threads).max(1);
    let rows = thread::scope(|scope| {
        let plan = |start| scope.spawn(move || survey::trainer_gpus(run, options, start..(start + n).min(n_gpus)));
        let threads: Vec<_> = (0..n_gpus).step_by(n).map(plan).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect::<Vec<_>>()
    });
    answer_of(&rows, json)
}

fn answer_of(rows: &[GpuRow], as_json: bool) -> Result<(String, bool), serde_json::Error> {
    let fits = rows.iter().any(|row| row.summary.is_some_and(|summary| summary.fit != Fit::Fails));
    Ok((if as_json { json(rows)? } else { table(rows, &Style::of_stdout()) }, fits))
}

/// The rows as JSON.
fn json(rows: &[GpuRow]) -> Result<String, serde_json::Error> {
    let (n_fit, found) = smallest(rows);
    let smallest = found.map(|row| &*row.device.name);
    let document = Document { schema: SCHEMA, n_fit, smallest, gpus: rows.iter().map(Row::from).collect() };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// The rows as a table with a summary.
fn table(rows: &[GpuRow], style: &Style) -> String {
    let headline = match smallest(rows) {
        (n, Some(row)) => {
            let left = human_size(row.summary.map_or(0, |summary| summary.headroom_bytes.unsigned_abs()));
            style.paint(Ink::Fits, &text::gpus_fit(n, rows.len()).to_string())
                + ". "
                + &text::gpus_smallest(&*row.device.name, left).to_string()
        }
        (_, None) => {
            style.paint(Ink::DoesNotFit, &text::Text::from(text::GPUS_NONE).to_string())
                + ". Lower the batch size, or plan one GPU to get fixes."
        }
    };
    let has_times = survey::has_times(rows);
    let shows_energy = has_times && style.columns.is_none_or(|columns| columns >= COLUMNS_WITH_ENERGY);
    let others = match (has_times, shows_energy) {
        (false, _) => OTHER_COLUMNS - TIME_COLUMNS,
        (true, false) => OTHER_COLUMNS,
        (true, true) => OTHER_COLUMNS + ENERGY_COLUMNS,
    };
    let longest = rows.iter().map(|row| row.device.name.len()).max().unwrap_or(0);
    let columns = style.columns.map_or(longest, |columns| longest.min(columns.saturating_sub(others)));
    let line = |name: &str, memory: &str, time: &str, energy: &str| {
        let time = if has_times { format!("  {time:>9}") } else { String::new() };
        let energy = if shows_energy { format!("  {energy:>9}") } else { String::new() };
        format!("{name:columns$}  {memory:>10}{time}{energy}  ")
    };
    let mut table = headline + "\n\n";
    let heading = line("GPU", "memory", "iteration", "energy") + "result";
    table.push_str(&(style.paint(Ink::Heading, &heading) + "\n"));
    for row in rows {
        let figure = |of: fn(&Summary) -> Option<f64>| row.summary.as_ref().and_then(of);
        let time = quantity(figure(|summary| summary.iteration_seconds).map(time_parts));
        let energy = figure(|summary| summary.max_iteration_watt_hours);
        let energy = quantity(energy.map(|watt_hours| energy_parts(watt_hours * 1e3)));
        let (ink, result) = row.summary.map_or((Ink::Quiet, "no plan".to_owned()), |summary| result(&summary));
        let name = style.shortened(&row.device.name, columns);
        let start = line(&name, &human_size(row.device.total_bytes), &time, &energy);
        table.push_str(&(start + &style.paint(ink, &result) + "\n"));
    }
    if has_times {
        table.push_str("\nThe time of an iteration is an estimate.\n");
    }
    table + if shows_energy { ENERGY_NOTE } else { "" }
}

/// A number with its unit; empty if unknown.
fn quantity(parts: Option<(String, &str)>) -> String {
    parts.map_or_else(String::new, |(number, unit)| format!("{number} {unit}"))
}

fn result(summary: &Summary) -> (Ink, String) {
    let size = human_size(summary.headroom_bytes.unsigned_abs());
    let (ink, text) = match summary.fit {
        Fit::Fits => (Ink::Fits, text::fits(size)),
        Fit::Narrow => (Ink::Fits, text::fits_narrowly(size)),
        Fit::Fails => (Ink::DoesNotFit, text::does_not_fit(size)),
    };
    (ink, text.to_string())
}
