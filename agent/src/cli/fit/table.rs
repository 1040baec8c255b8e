//! The parts of the answer for the terminal: the largest values, the smallest GPU, and the table of GPUs.

use std::collections::BTreeMap;

use headroom_planner::{
    fit::{FitAnswer, GpuRow, Limit, SmallestGpu},
    hardware::Device,
    plan::{Fit, Room},
};
use headroom_text::units::{GIB, human_size};

use crate::cli::style::{Ink, Style};

/// Name of a GPU without its brand. One that is given by its memory has no name.
fn name(device: &Device) -> String {
    match device.name.strip_prefix("GeForce ") {
        Some(model) => model.to_owned(),
        None if device.sm_count.is_none() => format!("a GPU with {}", human_size(device.total_bytes)),
        None => device.name.to_string(),
    }
}

/// The largest value of each knob.
pub fn limits(limits: &[Limit], device: &Device, style: &Style) -> String {
    let heading = format!("Largest value that fits on {}, each if nothing else changes", name(device));
    let key_columns = limits.iter().map(|limit| limit.knob.key.len() + 2).max().unwrap_or(0);
    let line = |key: &str, largest: &str, may_fit: &str, given: &str| {
        format!("{key:key_columns$}  {given:>8}  {largest:>8}  {may_fit:>8}")
    };
    let mut text = style.paint(Ink::Heading, &heading) + "\n";
    text.push_str(&(style.paint(Ink::Quiet, &line("", "fits", "may fit", "given")) + "\n"));
    for limit in limits {
        let largest = limit.largest.map_or_else(|| "none".to_owned(), |value| value.to_string());
        let largest = if limit.is_open() { format!("{largest}+") } else { largest };
        let may_fit = limit.may_fit.map_or_else(String::new, |value| value.to_string());
        let key = format!("--{}", limit.knob.key);
        let row = line(&key, &largest, &may_fit, &limit.knob.value.to_string());
        text.push_str(&format!("{}\n", row.trim_end()));
    }
    text
}

/// The smallest GPU on which the unchanged run fits.
pub fn smallest(found: Option<&SmallestGpu>, style: &Style) -> String {
    let heading = style.paint(Ink::Heading, "Smallest GPU for this run as given") + "\n";
    let Some(SmallestGpu { device, room, is_listed }) = found else {
        return heading + &style.wrapped("None: the run fits no known GPU.", 0);
    };
    let left = human_size(room.headroom_bytes.unsigned_abs());
    let gpu = format!("{}, which has {}: {left} left.", name(device), human_size(device.total_bytes));
    let text = if *is_listed { gpu } else { format!("None of the table. Of all known GPUs: {gpu}") };
    heading + &style.wrapped(&text, 0)
}

/// The memory left with each batch size on each GPU.
pub fn gpus(found: &FitAnswer, style: &Style) -> String {
    let Some(batch) = found.limits.first().map(|limit| limit.knob) else { return String::new() };
    let mark = |name: String, is_given: bool| if is_given { name + "*" } else { name };
    let names: Vec<String> = found.gpus.iter().map(|row| mark(name(&row.device), row.is_given)).collect();
    let sizes: Vec<String> =
        found.batch_sizes.iter().map(|size| mark(size.to_string(), *size == batch.value)).collect();
    let cells: Vec<Vec<String>> = found.gpus.iter().map(cells).collect();
    let width = |column: usize| {
        let cells = cells.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([sizes[column].len()]).max().unwrap_or(0) + 2
    };
    let name_columns = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("GPU".len());
    // The name, the memory and the largest size; the smallest sizes are dropped for the width.
    let others = name_columns + "  00.00 GiB".len() + "   largest".len();
    let widths: Vec<usize> = (0..sizes.len()).map(width).collect();
    let is_kept = |column: usize| found.batch_sizes[column] == batch.value;
    let mut shown: Vec<usize> = (0..sizes.len()).collect();
    while others + shown.iter().map(|column| widths[*column]).sum::<usize>() > style.table_columns() {
        match shown.iter().position(|column| !is_kept(*column)) {
            Some(at) => shown.remove(at),
            None => break,
        };
    }
    let heading = format!("GiB left on each GPU, by {}", batch.key);
    let mut text = style.paint(Ink::Heading, &heading) + "\n";
    let head: String = shown.iter().map(|column| format!("{:>1$}", sizes[*column], widths[*column])).collect();
    let head = format!("{:name_columns$}  {:>9}{head}   {:>7}", "GPU", "memory", "largest");
    text.push_str(&(style.paint(Ink::Quiet, &head) + "\n"));
    for ((row, name), cells) in found.gpus.iter().zip(&names).zip(&cells) {
        text.push_str(&format!("{name:name_columns$}  {:>9}", human_size(row.device.total_bytes)));
        let Ok(figures) = &row.figures else {
            text.push_str(&(style.paint(Ink::Quiet, "  not planned") + "\n"));
            continue;
        };
        for column in &shown {
            let cell = format!("{:>1$}", cells[*column], widths[*column]);
            text.push_str(&painted(&cell, figures.rooms[*column], style));
        }
        let largest = figures.limit.largest.map_or_else(|| "none".to_owned(), |size| size.to_string());
        let largest = if figures.limit.is_open() { format!("{largest}+") } else { largest };
        text.push_str(&format!("   {largest:>7}\n"));
    }
    text.push_str(&(style.paint(Ink::Quiet, "* as given   ~ fits narrowly   - or no: does not fit") + "\n"));
    text + &obstacles(&found.gpus, style)
}

/// The memory left with each batch size, in GiB.
fn cells(row: &GpuRow) -> Vec<String> {
    let rooms = row.figures.as_ref().map_or(&[][..], |figures| &figures.rooms);
    rooms.iter().map(|room| room.map_or_else(|| "no".to_owned(), cell)).collect()
}

fn cell(room: Room) -> String {
    let sign = match room.fit {
        Fit::Fits => "",
        Fit::Narrow => "~",
        Fit::Fails => "-",
    };
    format!("{sign}{:.2}", room.headroom_bytes.unsigned_abs() as f64 / GIB as f64)
}

fn painted(cell: &str, room: Option<Room>, style: &Style) -> String {
    match room.map(|room| room.fit) {
        Some(Fit::Fits) => style.paint(Ink::Fits, cell),
        Some(Fit::Narrow) => cell.to_owned(),
        Some(Fit::Fails) | None => style.paint(Ink::DoesNotFit, cell),
    }
}

/// Why GPUs of the table have no figures.
fn obstacles(gpus: &[GpuRow], style: &Style) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for cause in gpus.iter().filter_map(|row| row.figures.as_ref().err()) {
        *counts.entry(cause).or_default() += 1;
    }
    let line = |(cause, n): (&str, usize)| {
        let gpus = if n == 1 { "1 GPU is".to_owned() } else { format!("{n} GPUs are") };
        style.wrapped(&format!("{gpus} not planned: {cause}."), 0)
    };
    counts.into_iter().map(line).collect()
}
