//! `headroom gpus`: the cards that are known, as a table or as JSON.

use std::ffi::OsString;

use headroom_shared::{
    hardware::{ComputeCapability, Device, Provenance, devices},
    units::human_size,
};
use serde::Serialize;

use super::{
    Error, Exit,
    args::{Flag, Parsed, UsageError, Word, parse, refusal, shown},
    command::Command,
    print,
    style::{Ink, Style},
};

/// The schema's number.
const SCHEMA: u32 = 1;

/// Below this the beginning of a source says nothing, and the column is left out.
const SOURCE_COLUMNS_MIN: usize = 16;

const FLAGS: &[Flag<Request>] = &[Flag {
    name: "json",
    value: None,
    doc: "Print the cards as JSON, schema 1, with the rates and every source",
    set: |request, _| {
        request.json = true;
        Ok(())
    },
}];

#[derive(Debug, Default)]
struct Request {
    json: bool,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Document {
    schema: u32,
    gpus: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    total_bytes: u64,
    /// measured or estimated.
    total_basis: &'static str,
    total_source: &'static str,
    compute_capability: ComputeCapability,
    sm_count: Option<u32>,
    memory_bandwidth_bytes_per_second: Option<u64>,
    bf16_flops: Option<u64>,
    fp16_flops: Option<u64>,
    tf32_flops: Option<u64>,
    fp32_flops: Option<u64>,
    source: &'static str,
}

impl From<&'static Device> for Row {
    fn from(device: &'static Device) -> Self {
        let (total_basis, total_source) = total(device);
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
            source: device.source,
        }
    }
}

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "gpus",
    summary: "List known GPUs",
    about: "Lists the GPUs that `headroom plan --gpu NAME` knows.",
    usage: &["headroom gpus [--json]"],
    options: || shown(FLAGS),
    notes: "\
Looser spellings work too: rtx4070, \"NVIDIA GeForce RTX 4070\", \"A100 80GB\".
\"memory\" is what CUDA reports as the GPU's total, which is less than the size on the box.",
    exits: &[(0, "the GPUs are listed")],
    examples: &["headroom gpus", "headroom gpus --json"],
    run,
    ..Command::EMPTY
};

/// Runs the command.
///
/// # Errors
/// The words cannot be used, or standard output cannot be written.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, Error> {
    let mut request = Request::default();
    let text = match parse(COMMAND.name, FLAGS, args, &mut request, refuse)? {
        Parsed::Help => return COMMAND.print_help(),
        Parsed::Taken if request.json => json()?,
        Parsed::Taken => table(&Style::of_stdout()),
    };
    print::data(&text)?;
    Ok(Exit::Success)
}

fn refuse(_: &mut Request, word: Word) -> Result<(), UsageError> {
    Err(refusal(COMMAND.name, FLAGS, word))
}

fn json() -> Result<String, super::plan::Error> {
    let document = Document { schema: SCHEMA, gpus: devices().iter().map(Row::from).collect() };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn table(style: &Style) -> String {
    let name_columns = devices().iter().map(|device| device.name.len()).max().unwrap_or(0);
    let line = |name: &str, memory: &str, basis: &str, cc: &str, sm: &str, rate: &str| {
        format!("{name:name_columns$}  {memory:>10}  {basis:9}  {cc:>4}  {sm:>3}  {rate:>6}")
    };
    let heading = line("card", "memory", "", "cc", "SMs", "GB/s");
    let room = style.columns.map_or(usize::MAX, |columns| columns.saturating_sub(heading.len() + 2));
    let with_source = |line: String, source: &str| {
        if room < SOURCE_COLUMNS_MIN { line } else { format!("{line}  {}", style.shortened(source, room)) }
    };
    let mut text = style.paint(Ink::Heading, &with_source(heading, "source")) + "\n";
    for device in devices() {
        let sm = device.sm_count.map_or_else(String::new, |number| number.to_string());
        let rate = device.bandwidth_gb_per_second().map_or_else(String::new, |rate| format!("{rate:.0}"));
        let cc = device.compute_capability.to_string();
        let line = line(&device.name, &human_size(device.total_bytes), total(device).0, &cc, &sm, &rate);
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
