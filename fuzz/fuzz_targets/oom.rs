//! Fuzzes logs with an out-of-memory message: any text is read and diagnosed. A known message inside it is found with
//! every figure, regardless of line prefixes and colours.
#![no_main]

use headroom_fuzz::is_quick;
use headroom_languages::{english, table};
use headroom_planner::{
    nanogpt::from_pasted_text,
    oom::{Kind, Phase, Report, Size, diagnose, read},
    session::{Options, resolve},
};
use headroom_text::{LANGUAGES, Table};
use libfuzzer_sys::fuzz_target;
use serde_json::Value as Json;
use std::sync::LazyLock;

static TABLES: LazyLock<Vec<&Table>> =
    LazyLock::new(|| LANGUAGES.iter().map(|language| table(language.code)).collect());

/// End of a run as printed by PyTorch 2.5 and later. The traceback separates the message from the preceding text, and
/// the advice from the following text.
const KNOWN: &str = "\
Traceback (most recent call last):
  File \"/home/me/nanoGPT/train.py\", line 301, in <module>
    scaler.scale(loss).backward()
  File \"/usr/lib/python3/dist-packages/torch/_tensor.py\", line 581, in backward
    torch.autograd.backward(
  File \"/usr/lib/python3/dist-packages/torch/autograd/__init__.py\", line 347, in backward
    _engine_run_backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of 11.69 GiB of \
which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. Of the allocated memory \
6.78 GiB is allocated by PyTorch, and 39.14 MiB is reserved by PyTorch but unallocated. If reserved but unallocated \
memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation \
for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)
";

/// Separates the text from the message: some statuses depend on the hundred characters after them.
const RULE: &str =
    "----------------------------------------------------------------------------------------------------";

/// Prefixes and suffixes that programs, terminals and forums add to each line.
const DECORATIONS: [(&str, &str); 6] = [
    ("", "\n"),
    ("[rank3]: ", "\n"),
    ("\u{1b}[31m", "\u{1b}[0m\r\n"),
    ("> ", "\n\n"),
    ("2024-05-14 23:55:39,233 - ERROR - __main__ - ", "\n"),
    ("[default3]:\u{1b}[1;31m", " \n"),
];

/// Maximum length of a message's text, plus the bytes of a last character.
const MAX_TEXT_BYTES: usize = 2_010;

fn bounds_hold(text: &str, report: &Report) {
    assert_eq!(report.first.is_some(), report.last.is_some());
    assert!(report.n_messages == 0 || report.first.is_some());
    let n_lines = text.matches('\n').count() + 1;
    for message in [&report.first, &report.last].into_iter().flatten() {
        assert!((1..=n_lines).contains(&(message.line as usize)), "line {} of {n_lines}", message.line);
        assert!(message.text.len() <= MAX_TEXT_BYTES, "{} bytes", message.text.len());
        assert_eq!(message.kind == Kind::NotOom, message.not_oom.is_some());
        assert!(message.own_process.is_none_or(|own| own < message.other_processes.len()));
    }
}

/// Returns whether the run printed in the log, if any, is simulated in milliseconds.
fn diagnosed_quickly(text: &str) -> bool {
    let pasted = from_pasted_text("log", text);
    resolve(&pasted.sources, &Options::default()).request.as_ref().is_none_or(is_quick)
}

fn figures_reach_the_json(text: &str, report: &Report) {
    let diagnosis = diagnose(text, &[], &Options::default(), false);
    assert_eq!(diagnosis.report, *report);
    let document = diagnosis.json(english());
    // Any sentence can be formatted in every language.
    for table in &*TABLES {
        assert!(!table.say(&diagnosis.explanation.text).is_empty());
    }
    let read_again: Json = serde_json::from_str(&document.to_string()).expect("the output is JSON");
    assert_eq!(read_again, document);
    let bytes = |size: Option<Size>| Json::from(size.map(|size| size.bytes));
    let message = report.first.as_ref();
    for (key, size) in [
        ("requested_bytes", message.and_then(|message| message.requested)),
        ("total_bytes", message.and_then(|message| message.total)),
        ("free_bytes", message.and_then(|message| message.free)),
        ("allocated_bytes", message.and_then(|message| message.allocated)),
        ("reserved_bytes", message.and_then(|message| message.reserved)),
    ] {
        assert_eq!(document[key], bytes(size), "{key}");
    }
    assert!(document["explanation"].as_str().is_some_and(|words| message.is_none() || !words.is_empty()));
}

/// Inserts the known message between the two halves of the text and searches for it.
fn the_known_message_is_found(text: &str) {
    let (before, behind) = text.split_at(text.floor_char_boundary(text.len() / 2));
    let (prefix, line_end) = DECORATIONS[text.len() % DECORATIONS.len()];
    let decorated: String = KNOWN.lines().map(|line| format!("{prefix}{line}{line_end}")).collect();
    let report = read(&format!("{before}\n{RULE}\n{decorated}{RULE}\n{behind}"));
    assert!(report.n_messages > 0);
    if read(before).n_messages > 0 || read(behind).n_messages > 0 {
        return;
    }
    let (known, found) = (read(KNOWN).first.expect("a message"), report.first.expect("a message"));
    let figures = |message: &headroom_planner::oom::Message| {
        let held = [message.process, message.allocated, message.reserved, message.unallocated];
        ([message.requested, message.total, message.free], held, message.kind, message.era, message.gpu_index)
    };
    assert_eq!((figures(&found), report.n_messages), (figures(&known), 1));
    assert_eq!(report.phase_hint.phase, Some(Phase::Backward));
    assert!(found.rank == Some(3) || !prefix.starts_with('['), "{:?}", found.rank);
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let report = read(&text);
    bounds_hold(&text, &report);
    if diagnosed_quickly(&text) {
        figures_reach_the_json(&text, &report);
    }
    the_known_message_is_found(&text);
});
