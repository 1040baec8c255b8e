//! Every message of `tests/golden/oom`, field by field, also as altered by terminals and logs.

use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use headroom_text::units::parse_size;

const GOLDEN: &str = include_str!("../../../../tests/golden/oom/messages.txt");

/// An entry of the golden file.
struct Entry {
    source: &'static str,
    fields: Vec<(&'static str, &'static str)>,
    text: &'static str,
}

impl Entry {
    fn field(&self, name: &str) -> Option<&'static str> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value)
    }
}

fn entries() -> Vec<Entry> {
    let entries: Vec<Entry> = GOLDEN
        .strip_prefix("=== ")
        .expect("the first entry")
        .split("\n=== ")
        .map(|entry| {
            let (head, text) = entry.split_once("\n---\n").expect("fields and a text");
            let mut lines = head.lines();
            let source = lines.next().expect("a source");
            let fields = lines.map(|line| line.split_once(' ').expect("a field and its value")).collect();
            Entry { source, fields, text }
        })
        .collect();
    assert!(entries.len() >= 70, "{}", entries.len());
    entries
}

/// Parses a printed size, or the sum of two, with the crate's other parser of sizes.
fn size(text: &str) -> Size {
    let mut sum = Size { bytes: 0, resolution_bytes: 0 };
    for part in text.split(" + ") {
        let (number, unit) = part.split_once(' ').expect("a number and a unit");
        let (bytes, resolution_bytes) = if unit == "bytes" {
            (number.split('*').map(|factor| factor.parse::<u64>().expect(text)).product(), 1)
        } else {
            let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            let unit = parse_size(&format!("1{unit}")).expect(text);
            (parse_size(part).expect(text), unit.div_ceil(10_u64.pow(u32::try_from(decimals).expect("few"))))
        };
        sum.bytes += bytes;
        sum.resolution_bytes += resolution_bytes;
    }
    sum
}

fn version(text: &str) -> Option<crate::memory::message::TorchVersion> {
    (!text.is_empty()).then(|| text.parse().expect("a version"))
}

/// Returns the message that an entry must be parsed into, except for `text`, which is compared separately.
fn expected(entry: &Entry) -> Message {
    let kind = [
        ("pytorch", Kind::Pytorch),
        ("pytorch_cuda_malloc", Kind::PytorchCudaMalloc),
        ("cublas", Kind::Cublas),
        ("llm_c", Kind::LlmC),
        ("bitsandbytes", Kind::Bitsandbytes),
        ("jax", Kind::Jax),
        ("tensorflow", Kind::Tensorflow),
        ("mps", Kind::Mps),
        ("cpu", Kind::Cpu),
        ("not_oom", Kind::NotOom),
    ];
    let name = entry.field("kind").expect("a kind");
    let kind = kind.iter().find(|(known, _)| *known == name).expect(name).1;
    let figure = |name| entry.field(name).map(size);
    let mut message = Message::new(kind);
    message.line = entry.field("line").map_or(1, |line| line.parse().expect("a line"));
    message.requested = figure("requested");
    message.total = figure("total");
    message.free = figure("free");
    message.process = figure("process");
    message.allocated = figure("allocated");
    message.reserved = figure("reserved");
    message.unallocated = figure("unallocated");
    message.private_pools = figure("private_pools");
    message.allowed = figure("allowed");
    message.gpu_index = entry.field("gpu").map(|gpu| gpu.parse().expect("a GPU"));
    message.rank = entry.field("rank").map(|rank| rank.parse().expect("a rank"));
    for other in entry.field("others").into_iter().flat_map(|others| others.split(", ")) {
        let (pid, bytes) = other.split_once(' ').expect("a process and its size");
        message.other_processes.push(OtherProcess { pid: pid.parse().ok(), bytes: size(bytes) });
    }
    message.own_process = entry.field("own").map(|own| own.parse().expect("an index"));
    message.era = entry.field("era").map(|era| {
        let (first, last) = era.split_once('-').expect("a range of versions");
        Era { first: version(first).expect("a version"), last: version(last) }
    });
    message
}

/// Returns the message without the fields that depend on its line breaks.
fn facts(message: &Message) -> Message {
    Message { text: String::new(), line: 0, rank: None, ..message.clone() }
}

#[test]
fn golden_messages() {
    for entry in entries() {
        let report = read(entry.text);
        let source = entry.source;
        let first = report.first.as_ref().unwrap_or_else(|| panic!("{source}: nothing was found"));
        let mut message = expected(&entry);
        // Note names are compared as text, to avoid repeating the list of notes here.
        let notes: Vec<String> = first.notes.iter().map(|note| format!("{note:?}")).collect();
        assert_eq!(notes.join(", "), entry.field("notes").unwrap_or_default(), "{source}");
        let not_oom = first.not_oom.map(|not| format!("{not:?}"));
        assert_eq!(not_oom.as_deref(), entry.field("not_oom"), "{source}");
        let hint = report.phase_hint;
        assert_eq!(hint.phase.map(|phase| format!("{phase:?}")).as_deref(), entry.field("phase"), "{source}");
        assert_eq!(hint.operation.map(|at| format!("{at:?}")).as_deref(), entry.field("operation"), "{source}");
        assert_eq!(hint.origin.map(Origin::program).as_deref(), entry.field("program"), "{source}");
        message.notes.clone_from(&first.notes);
        message.not_oom = first.not_oom;
        message.text.clone_from(&first.text);
        assert_eq!(*first, message, "{source}");
        assert!(!first.text.is_empty(), "{source}");
        let n = entry.field("n").map_or(1, |n| n.parse().expect("a number"));
        assert_eq!(report.n_messages, n, "{source}");
        assert!(!report.truncated);
    }
}

#[test]
fn the_text_is_the_message_alone() {
    for (pasted, text) in [
        (
            "[rank1]: \u{1b}[31mtorch.OutOfMemoryError\u{1b}[0m: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 \
             has a total capacity of 8.00 GiB of which 1.00 GiB is free. And more",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 8.00 \
             GiB of which 1.00 GiB is free.",
        ),
        (
            "  0%|  | 0/3 [00:23<?, ?it/s]RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 \
             GiB total capacity) If reserved memory is &gt;&gt; allocated memory try setting max_split_size_mb to avoid \
             fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF\r\nmore",
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity) If reserved \
             memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for \
             Memory Management and PYTORCH_CUDA_ALLOC_CONF",
        ),
        ("x\n> RuntimeError: CUDA error: out of memory\n> CUDA kernel", "RuntimeError: CUDA error: out of memory"),
        ("a\n  b\n[0]: llm: CUBLAS_STATUS_ALLOC_FAILED here\nc", "llm: CUBLAS_STATUS_ALLOC_FAILED here"),
    ] {
        let first = read(pasted).first.expect(pasted);
        assert_eq!(first.text, text);
    }
}

const NEW: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity \
                   of 11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB \
                   memory in use. Of the allocated memory 6.78 GiB is allocated by PyTorch, and 39.14 MiB is reserved \
                   by PyTorch but unallocated.";

#[test]
fn ranks_count_apart() {
    let text = format!(
        "Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 264, in <module>\n[rank0]:     losses = \
         estimate_loss()\n[rank0]: {NEW}\n[rank3]: {NEW}\n[default1]:{NEW}\nChildFailedError: train.py FAILED\n"
    );
    let report = read(&text);
    let ranks = [&report.first, &report.last].map(|message| message.as_ref().and_then(|message| message.rank));
    assert_eq!((ranks, report.n_messages), ([Some(0), Some(1)], 3));
    assert_eq!(report.phase_hint.phase, Some(Phase::Evaluation));
    assert_eq!(report.last.map(|last| last.line), Some(6));
}

#[test]
fn a_traceback_says_where_the_run_was() {
    let frames = "Traceback (most recent call last):\n  File \"train.py\", line 264, in <module>\n    logits, loss = \
                  model(X, Y)\n  File \"/t/module.py\", line 1, in _call_impl\n  File \"model.py\", line 180, in \
                  forward\n    x = block(x)\n  File \"model.py\", line 100, in forward\n    x = x + \
                  self.attn(self.ln_1(x))\n    y = torch.nn.functional.scaled_dot_product_attention(q, k, v)\n";
    let hint = read(&format!("{frames}{NEW}")).phase_hint;
    assert_eq!((hint.phase, hint.operation), (Some(Phase::Forward), Some(Operation::Attention)));
    // The traceback may follow the message, and an older traceback is ignored.
    assert_eq!(read(&format!("{NEW}\n{frames}")).phase_hint, hint);
    let other = "Traceback (most recent call last):\n    scaler.step(optimizer)\n";
    assert_eq!(read(&format!("{frames}\nother\n{other}{NEW}")).phase_hint.phase, Some(Phase::Optimizer));
}

#[test]
fn other_ways_to_paste() {
    let wanted = facts(&read(NEW).first.expect("a message"));
    for text in [
        format!("{{\"level\": \"error\", \"msg\": \"{}\\nTraceback (most\"}}", NEW.replace(". ", ".\\n")),
        format!("**{}**", NEW.replace(' ', "&nbsp;")),
        format!("| error | {NEW} |"),
        format!("RuntimeError('{NEW}')"),
        format!("backend='inductor' raised:\n{NEW}\n\nSet TORCH_LOGS=\"+dynamo\""),
        format!("<pre>{}</pre>", NEW.replace(". ", ".<br/>")),
        NEW.replace(' ', "\n"),
        NEW.replace(". ", ".\n\n    "),
        NEW.to_uppercase(),
    ] {
        let report = read(&text);
        assert_eq!(report.n_messages, 1, "{text}");
        assert_eq!(facts(&report.first.expect("a message")), wanted, "{text}");
    }
}

#[test]
fn no_message() {
    for text in [
        "",
        "iter 0: loss 10.8, time 2609ms, mfu -100.00%",
        "if \"out of memory\" in str(e):",
        "except torch.cuda.OutOfMemoryError:",
        "he tried to allocate more time",
        "batch_size = 12\nblock_size = 1024",
        "RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Generate requests'",
    ] {
        assert_eq!(read(text), Report::default(), "{text}");
    }
    let mentioned = read("why do I run out of memory with 24 GB?").first.and_then(|first| first.not_oom);
    assert_eq!(mentioned, Some(NotOom::OnlyMentioned));
}

#[test]
fn message_outranks_other_text() {
    let text = format!("NCCL error in: x\nKeyboardInterrupt\n{NEW}\nexitcode: -9\nKilled\nCUDA out of memory.\n");
    let report = read(&text);
    assert_eq!((report.n_messages, report.first.map(|first| first.line)), (1, Some(3)));
}

#[test]
fn too_long_a_text_is_read_at_both_ends() {
    let filler = "é step\n".repeat(1_000_000);
    let report = read(&format!("{NEW}\n{filler}{NEW}\n{filler}{NEW}"));
    assert_eq!((report.n_messages, report.truncated), (2, true));
    assert_eq!(report.last.map(|last| last.line), Some(2_000_003));
}

#[test]
fn a_message_may_end_anywhere() {
    for entry in entries() {
        let whole = read(entry.text);
        for (at, _) in entry.text.char_indices() {
            let (head, tail) = entry.text.split_at(at);
            let _ = read(tail);
            let report = read(head);
            assert!(report.n_messages <= whole.n_messages.max(1), "{head}");
        }
    }
}

/// Alteration of each line of a message.
#[derive(Clone, Copy, Debug)]
struct Decoration {
    prefix: &'static str,
    width: usize,
    line_break: &'static str,
    html: bool,
}

fn decorated(text: &str, decoration: Decoration) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let chars: Vec<char> = line.chars().collect();
        let n = chars.chunks(decoration.width).len();
        for piece in chars.chunks(decoration.width) {
            let piece: String = piece.iter().collect();
            let piece = if decoration.html { piece.replace('>', "&gt;").replace(' ', "\u{a0}") } else { piece };
            write!(out, "{}{piece}{}", decoration.prefix, decoration.line_break).expect("a string");
        }
        if n == 0 {
            out.push_str(decoration.line_break);
        }
    }
    out
}

fn decoration() -> impl Strategy<Value = Decoration> {
    let prefix = prop::sample::select(vec![
        "",
        "[rank7]: ",
        "[default7]:",
        "[7]: ",
        "> ",
        "&gt; ",
        "2024-05-14 23:55:39,233 - ERROR - __main__ - ",
        "\u{1b}[31m",
        "[31m",
        "[2023-11-13 16:59:54,760] [ERROR] ",
        "│ ",
        "E   ",
        "[rank7]: \u{1b}[1;31m2025-11-12T11:25:13.4961658Z ",
        "(train pid=2657296) ",
    ]);
    let line_break = prop::sample::select(vec!["\n", "\r\n", "\r", " \n", "\u{1b}[0m\n", "\n\n", "<br>\n"]);
    (prefix, 40_usize..400, line_break, any::<bool>()).prop_map(|(prefix, width, line_break, html)| Decoration {
        prefix,
        width,
        line_break,
        html,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn decorations_change_no_fact(i in 0_usize..1000, decoration in decoration()) {
        let entries = entries();
        let entry = &entries[i % entries.len()];
        // Some messages depend on line boundaries, so splitting their line gives another text.
        prop_assume!(!["Killed\n", "MemoryError\n"].iter().any(|end| format!("{}\n", entry.text).ends_with(end)));
        let text = decorated(entry.text, decoration);
        let (plain, report) = (read(entry.text), read(&text));
        prop_assert_eq!(report.n_messages, plain.n_messages, "{}", text);
        prop_assert_eq!(report.phase_hint, plain.phase_hint, "{}", text);
        let (plain, found) = (plain.first.expect("a message"), report.first.expect("a message"));
        prop_assert_eq!(facts(&found), facts(&plain), "{}", text);
        let rank = decoration.prefix.contains("7]").then_some(7);
        prop_assert_eq!(found.rank, rank.or(plain.rank), "{}", text);
    }

    #[test]
    fn any_text_is_read(text in "\\PC*") {
        let _ = read(&text);
    }

    #[test]
    fn any_bytes_between_messages(
        i in 0_usize..1000,
        at in 0_usize..2000,
        noise in "[\u{0}-\u{ff}\u{2500}\u{1f600}\\[\\]&<\\\\0-9:.,;]{0,12}",
        n_removed in 0_usize..8,
    ) {
        let entries = entries();
        let text = entries[i % entries.len()].text;
        let at = text.floor_char_boundary(at % (text.len() + 1));
        let behind = text.floor_char_boundary((at + n_removed).min(text.len())).max(at);
        let report = read(&format!("{}{noise}{}", &text[..at], &text[behind..]));
        for message in [report.first, report.last].into_iter().flatten() {
            prop_assert!(message.text.len() <= 2000);
            prop_assert!(message.other_processes.len() <= 100);
        }
    }
}
