//! `headroom gpus`: the known GPUs, as a table or as JSON.

use std::ffi::OsString;

use headroom_planner::hardware::{ComputeCapability, Device, Provenance, devices, find, search};
use headroom_text::units::human_size;
use serde::Serialize;

use super::{
    Error, Exit,
    args::{Flag, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::{Command, Words},
    print,
    style::{Ink, Style},
};

/// Version of the JSON schema.
const SCHEMA: u32 = 1;

/// Minimum width of the source column; if narrower, the column is omitted.
const SOURCE_COLUMNS_MIN: usize = 16;

const FLAGS: &[Flag<Request>] = &[Flag {
    name: "json",
    value: None,
    doc: "Print the GPUs as JSON, schema 1, with rates and sources",
    set: |request, _| {
        request.json = true;
        Ok(())
    },
}];

#[derive(Debug, Default)]
struct Request {
    json: bool,
    /// Search words, separated by spaces. Empty for all GPUs.
    search: String,
}

/// JSON output.
#[derive(Debug, Serialize)]
struct Document {
    schema: u32,
    gpus: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    total_bytes: u64,
    /// `measured` or `estimated`.
    total_basis: &'static str,
    total_source: &'static str,
    compute_capability: ComputeCapability,
    sm_count: Option<u32>,
    memory_bandwidth_bytes_per_second: Option<u64>,
    bf16_flops: Option<u64>,
    fp16_flops: Option<u64>,
    tf32_flops: Option<u64>,
    fp32_flops: Option<u64>,
    board_power_watts: Option<u16>,
    board_power_source: Option<&'static str>,
    source: &'static str,
}

impl From<&'static Device> for Row {
    fn from(device: &'static Device) -> Self {
        let (total_basis, total_source) = total(device);
        let power = device.board_power();
        Self {
            name: &device.name,
            total_bytes: device.total_bytes,
            total_basis,
            total_source,
            compute_capability: device.compute_capability,
            sm_count: device.sm_count,
            memory_bandwidth_bytes_per_second: device.memory_bandwidth,
            bf16_flops: device.rates.bf16,
            fp16_flops: device.rates.fp16,
            tf32_flops: device.rates.tf32,
            fp32_flops: device.rates.fp32,
            board_power_watts: power.map(|power| power.watts),
            board_power_source: power.map(|power| power.source),
            source: device.source,
        }
    }
}

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "gpus",
    summary: "List known GPUs",
    about: "Lists the GPUs that `headroom plan --gpu NAME` knows, or those that match SEARCH.",
    usage: &["headroom gpus [SEARCH …] [--json]"],
    arguments: "  SEARCH  Parts of a name or a size such as 24GB, in any order; ignores spaces and case",
    options: || shown(FLAGS),
    words: Words::Name,
    notes: "\
Other spellings also match: rtx4070, \"NVIDIA GeForce RTX 4070\", \"A100 80GB\".
\"memory\" is the total that CUDA reports, which is less than the advertised size.
\"W\" is the power limit of the board. Limits of laptops differ, so they have none.",
    exits: &[(0, "the GPUs are listed"), (1, "no GPU matches")],
    examples: &["headroom gpus", "headroom gpus 4070ti", "headroom gpus 24GB laptop", "headroom gpus --json"],
    run,
    ..Command::EMPTY
};

/// Runs the command.
///
/// # Errors
/// The arguments are invalid, or standard output cannot be written.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, Error> {
    let mut request = Request::default();
    if parse(COMMAND.name, FLAGS, args, &mut request, take_word)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    // All GPUs are listed in the order of the table.
    let gpus: Vec<&'static Device> = match &*request.search {
        "" => devices().iter().collect(),
        words => search(words).into_iter().map(|(_, device)| device).collect(),
    };
    if gpus.is_empty() {
        let suggested = find(&request.search).err().map(|unknown| unknown.suggestions().join(", "));
        let hint = suggested.filter(|names| !names.is_empty());
        let hint =
            hint.map_or_else(|| "`headroom gpus` lists all GPUs".to_owned(), |names| format!("did you mean {names}?"));
        print::error(&format!("headroom: no GPU matches {:?}\n\nhint: {hint}\n", request.search));
        return Ok(Exit::Failure);
    }
    print::data(&if request.json { json(&gpus)? } else { table(&gpus, &Style::of_stdout()) })?;
    Ok(Exit::Success)
}

fn take_word(request: &mut Request, word: Word) -> Result<(), UsageError> {
    match word {
        Word::Plain(word) => {
            let separator = if request.search.is_empty() { "" } else { " " };
            request.search.push_str(separator);
            request.search.push_str(&word.into_string().map_err(UsageError::NotUnicode)?);
            Ok(())
        }
        other => Err(refusal(COMMAND.name, FLAGS, other)),
    }
}

fn json(gpus: &[&'static Device]) -> Result<String, super::plan::Error> {
    let document = Document { schema: SCHEMA, gpus: gpus.iter().copied().map(Row::from).collect() };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn table(gpus: &[&Device], style: &Style) -> String {
    let name_columns = gpus.iter().map(|device| device.name.len()).max().unwrap_or(0);
    let line = |name: &str, memory: &str, basis: &str, cc: &str, [sm, rate, watts]: [&str; 3]| {
        format!("{name:name_columns$}  {memory:>10}  {basis:9}  {cc:>4}  {sm:>3}  {rate:>6}  {watts:>4}")
    };
    let heading = line("GPU", "memory", "", "cc", ["SMs", "GB/s", "W"]);
    let room = style.columns.map_or(usize::MAX, |columns| columns.saturating_sub(heading.len() + 2));
    let with_source = |line: String, source: &str| {
        if room < SOURCE_COLUMNS_MIN { line } else { format!("{line}  {}", style.shortened(source, room)) }
    };
    let mut text = style.paint(Ink::Heading, &with_source(heading, "source")) + "\n";
    for device in gpus.iter().copied() {
        let sm = device.sm_count.map_or_else(String::new, |number| number.to_string());
        let rate = device.bandwidth_gb_per_second().map_or_else(String::new, |rate| format!("{rate:.0}"));
        let cc = device.compute_capability.to_string();
        let watts = device.board_power().map_or_else(String::new, |power| power.watts.to_string());
        let line = line(&device.name, &human_size(device.total_bytes), total(device).0, &cc, [&sm, &rate, &watts]);
        text.push_str(with_source(line, device.source).trim_end());
        text.push('\n');
    }
    text
}

fn total(device: &Device) -> (&'static str, &'static str) {
    match device.total_provenance {
        Provenance::Measured { source } => ("measured", source),
        Provenance::Estimated { rule } => ("estimated", rule),
        Provenance::Given => ("given", "given by the caller"),
    }
}
