//! Tests with a recorded run, lines of users' programs, and bytes in arbitrary chunks.

use super::*;
use headroom_planner::nanogpt::{PastedKind, Value, from_pasted_text};
use proptest::prelude::*;

/// Output of a run of unmodified nanoGPT.
const RECORDED: &str = include_str!("../../../../tests/golden/logs/nanogpt_cpu_char.log");

/// Parses the chunks in order.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<PrintedInfo> {
    let (mut lines, mut reader, mut all) = (Lines::default(), Reader::default(), vec![]);
    for piece in pieces {
        lines.push(piece, |line| reader.line(line, &mut |said| all.push(said)));
    }
    lines.finish(|line| reader.line(line, &mut |said| all.push(said)));
    reader.finish(&mut |said| all.push(said));
    all
}

fn read_text(text: &str) -> Vec<PrintedInfo> {
    read([text.as_bytes()])
}

fn iteration(iter: u64, loss: f64, time_ms: f64) -> Iteration {
    Iteration {
        iter,
        loss: Some(loss),
        time_ms,
        tokens_per_second: None,
        mfu_printed_percent: None,
        mfu_percent: None,
        ..Iteration::default()
    }
}

/// Returns the figure after a word of a line, independently of the parser.
fn figure(line: &str, word: &str) -> f64 {
    let behind = &line[line.find(word).expect("the word") + word.len()..];
    let end = behind.find(|c: char| !matches!(c, '0'..='9' | '.' | '-')).unwrap_or(behind.len());
    behind[..end].parse().expect("a figure")
}

#[test]
fn every_line_of_a_recorded_run_is_read() {
    let all = read_text(RECORDED);
    let iterations: Vec<_> =
        all.iter().filter_map(|said| if let PrintedInfo::Iteration(it) = said { Some(*it) } else { None }).collect();
    let lines: Vec<&str> = RECORDED.lines().filter(|line| line.starts_with("iter ")).collect();
    assert_eq!((lines.len(), iterations.len()), (41, 41));
    for (line, read) in lines.iter().zip(&iterations) {
        assert_eq!(figure(line, "iter "), read.iter as f64, "{line}");
        assert_eq!(Some(figure(line, "loss ")), read.loss, "{line}");
        assert_eq!(figure(line, "time "), read.time_ms, "{line}");
        assert_eq!(Some(figure(line, "mfu ")).filter(|mfu| *mfu >= 0.0), read.mfu_printed_percent, "{line}");
    }
    let evaluations: Vec<_> =
        all.iter().filter_map(|said| if let PrintedInfo::Evaluation(at) = said { Some(*at) } else { None }).collect();
    let at = |iter, train, val| Evaluation { iter, train_loss: Some(train), val_loss: Some(val) };
    assert_eq!(evaluations, [at(0, 10.8413, 10.8390), at(20, 10.1396, 10.1374), at(40, 8.4788, 8.4750)]);
    let saved = all.iter().filter(|said| **said == PrintedInfo::Checkpoint("out".to_owned())).count();
    assert_eq!(saved, 2);
    // All other information of the run, in order and once.
    assert!(matches!(all[0], PrintedInfo::TokensPerIteration(768)), "{:?}", all[0]);
    assert!(matches!(all[1], PrintedInfo::Config(_)), "{:?}", all[1]);
    assert_eq!(all[2], PrintedInfo::Parameters { millions: 7.23, decimals: 2 });
    assert_eq!(all.len(), 3 + 41 + 3 + 2);
}

#[test]
fn the_printed_config_is_read_as_a_pasted_log() {
    let all = read_text(RECORDED);
    let Some(PrintedInfo::Config(text)) = all.get(1) else { panic!("{all:?}") };
    let (collected, whole) = (from_pasted_text("log", text), from_pasted_text("log", RECORDED));
    assert_eq!(collected.kind, PastedKind::Log);
    assert_eq!(collected.sources, whole.sources);
    let settings = collected.read();
    for (key, value) in
        [("n_layer", 4), ("block_size", 64), ("batch_size", 12), ("max_iters", 40), ("vocab_size", 50304)]
    {
        assert_eq!(settings.value(key), Some(Value::Int(value)), "{key}");
    }
}

#[test]
fn lines_that_people_print() {
    let only = |line: &str| read_text(line);
    let said = |it| vec![PrintedInfo::Iteration(it)];
    assert_eq!(only("iter 3: loss 1.25, time 4.00ms"), said(iteration(3, 1.25, 4.0)));
    let ours =
        Iteration { tokens_per_second: Some(1868.0), mfu_percent: Some(41.25), ..iteration(1_000_000, 0.0, 3.5) };
    let line = "iter 1000000: loss 0.0000, time 3.50ms, mfu 41.25%, 1868 tokens/s, 3 min left";
    assert_eq!(only(&format!("{line}\n")), said(ours));
    let learnt = Iteration { learning_rate: Some(6e-4), gradient_norm: Some(0.8312), ..ours };
    assert_eq!(only(&format!("{line}, lr 6.000e-4, norm 0.8312\n")), said(learnt));
    let lost = Iteration { learning_rate: Some(6e-4), ..ours };
    assert_eq!(only(&format!("{line}, lr 6.000e-4, norm NaN\n")), said(lost), "a norm that is no number");
    assert_eq!(only("A GPT of 801024 parameters: n_layer 4, n_head 4"), [PrintedInfo::Builtin(801_024)]);
    assert_eq!(only("On the CPU, 2 threads, float32."), [PrintedInfo::OnCpu]);
    assert_eq!(only("evaluating: 37 of 400 batches\n"), [PrintedInfo::Evaluating { done: 37, of: 400 }]);
    assert_eq!(only("Allocated 22347776 bytes, as planned."), [PrintedInfo::Allocation(22_347_776)]);
    for (loss, is) in
        [("nan", None), ("inf", Some(f64::INFINITY)), ("-inf", Some(f64::NEG_INFINITY)), ("-0.5", Some(-0.5))]
    {
        let read = only(&format!("iter 0: loss {loss}, time 1.00ms, mfu -100.00%"));
        assert_eq!(read, said(Iteration { loss: is, ..iteration(0, 0.0, 1.0) }), "{loss}");
    }
    let evaluation = Evaluation { iter: 7, train_loss: None, val_loss: Some(2.5) };
    assert_eq!(only("step 7: train loss nan, val loss 2.5000\r\n"), [PrintedInfo::Evaluation(evaluation)]);
    for (line, millions, decimals) in [("10.65M", 10.65, 2), ("124M", 124.0, 0), ("0.801M", 0.801, 3)] {
        let read = only(&format!("number of parameters: {line}"));
        assert_eq!(read, [PrintedInfo::Parameters { millions, decimals }]);
    }
    assert_eq!(
        only("tokens per iteration will be: 491,520\n")[0],
        PrintedInfo::TokensPerIteration(491_520),
        "the thousands are set apart"
    );
    assert_eq!(only("saving checkpoint to out dir\n"), [PrintedInfo::Checkpoint("out dir".to_owned())]);
}

#[test]
fn similar_line_is_ignored() {
    for line in [
        "iter x: loss 1.0, time 1.00ms",
        "iter -1: loss 1.0, time 1.00ms",
        "iter 18446744073709551616: loss 1.0, time 1.00ms",
        "iter 1: loss , time 1.00ms",
        "iter 1: loss 1.0, time nanms",
        "iter 1: loss 1.0, time -1.00ms",
        "iter 1: loss 1.0",
        "iter 1, loss 1.0, time 1.00ms",
        " iter 1: loss 1.0, time 1.00ms",
        "step 1: train loss 1.0",
        "steps: 5",
        "number of parameters: manyM",
        "number of parameters: 5",
        "tokens per iteration will be: ",
        "tokens per iteration will be: 99999999999999999999",
        "saving checkpoints",
        "A GPT of many parameters: n_layer 4",
        "It will allocate 21.3 MiB (22347776 bytes):",
        "Allocated -1 bytes",
        "evaluating: some of 400 batches",
        "",
    ] {
        let said: Vec<_> = read_text(line).into_iter().filter(|said| !matches!(said, PrintedInfo::Config(_))).collect();
        assert_eq!(said, [], "{line:?}");
    }
}

#[test]
fn a_terminal_s_orders_are_no_part_of_a_line() {
    let all = read_text(
        "\x1b[32miter 1: loss 1.0, \x1b[1mtime 2.00ms\x1b[0m\r\n\x1b]0;a title\x07iter 2: loss 1.0, time 2.00ms\n\
         \x1b]8;;link\x1b\\iter 3: loss 1.0, time 2.00ms\x1b[K\n 10%|#   |\r 20%|##  |\riter 4: loss 1.0, time 2.00ms\r",
    );
    let iters: Vec<u64> = all
        .iter()
        .filter_map(|said| if let PrintedInfo::Iteration(it) = said { Some(it.iter) } else { None })
        .collect();
    assert_eq!(iters, [1, 2, 3, 4]);
}

#[test]
fn several_processes_print_at_once() {
    // Output of torchrun with --tee, and of unbuffered processes that interleave within lines.
    let text = "[default0]:Overriding config with config/x.py:\n[default0]:n_layer = 6\n[default0]:\n\
        [default0]:Overriding: batch_size = 64Overriding: batch_size = 64\n\n\
        [default1]:Overriding config with config/x.py:\n[default1]:n_layer = 6\n[default1]:\n\
        tokens per iteration will be: 768tokens per iteration will be: 768\n\n\
        number of parameters: 10.65Mnumber of parameters: 10.65M\n\n\
        [default1]:Overriding config with config/late.py:\n[default1]:n_layer = 12\n\
        [rank1]: Traceback (most recent call last)\n[default0]: iter 5: loss 2.0, time 1.00ms, mfu 3.00%\n";
    let all = read_text(text);
    let Some(PrintedInfo::Config(config)) = all.iter().find(|said| matches!(said, PrintedInfo::Config(_))) else {
        panic!("{all:?}")
    };
    let mut settings = from_pasted_text("log", config).read();
    assert_eq!((settings.get_u64("n_layer"), settings.get_u64("batch_size")), (Some(6), Some(64)), "{config}");
    assert_eq!(settings.problems.as_slice().len(), 0, "{config}");
    assert_eq!(all.iter().filter(|said| matches!(said, PrintedInfo::Config(_))).count(), 1, "the first suffices");
    assert!(
        all.contains(&PrintedInfo::Parameters { millions: 10.65, decimals: 2 })
            && all.contains(&PrintedInfo::TokensPerIteration(768)),
        "{all:?}"
    );
    assert!(matches!(all.last(), Some(PrintedInfo::Iteration(Iteration { iter: 5, .. }))), "{all:?}");
}

#[test]
fn a_run_that_ends_early_leaves_what_it_printed() {
    let end = RECORDED.find("Overriding: n_layer").expect("it is there");
    let all = read_text(&RECORDED[..end + 7]);
    let [PrintedInfo::Config(text)] = &all[..] else { panic!("{all:?}") };
    assert_eq!(from_pasted_text("log", text).read().value("batch_size"), Some(Value::Int(12)));
    assert_eq!(read_text(""), []);
}

#[test]
fn nothing_grows_without_bound() {
    let mut lines = Lines::default();
    let mut longest = 0;
    for _ in 0..64 {
        lines.push(&[b'x'; 64 << 10], |line| longest = longest.max(line.len()));
    }
    lines.push(b"\niter 1: loss 1.0, time 1.00ms\n", |line| longest = longest.max(line.len()));
    assert_eq!(longest, MAX_LINE_BYTES);
    let endless = format!("Overriding config with x.py:\n{}", "x = 'a config without an end'\n".repeat(50_000));
    let all = read_text(&endless);
    let [PrintedInfo::Config(text)] = &all[..] else { panic!("one config") };
    assert!(text.len() <= MAX_CONFIG_BYTES && text.len() > MAX_CONFIG_BYTES / 2);
}

#[test]
fn lost_bytes_spoil_their_own_line_alone() {
    let (mut lines, mut all) = (Lines::default(), vec![]);
    lines.push(b"one\ntw", |line| all.push(line.to_owned()));
    lines.gap();
    lines.push(b"ree\nfour\n", |line| all.push(line.to_owned()));
    assert_eq!(all, ["one", "four"]);
}

/// Fragments that produce difficult combinations.
const PIECES: &[&[u8]] = &[
    b"\r",
    b"\n",
    b"\r\n",
    b"\x1b",
    b"\x1b[3",
    b"1m",
    b"\x1b]0;t",
    b"\x07",
    b"\x1b\\",
    b"\xff",
    b"\xe2\x82",
    b"\xac",
    b"[rank0]: ",
    b"[default1]:",
    b"Overriding config with c.py:",
    b"Overriding: n_layer = 2",
    b"n_head = 2",
    b"iter 1: loss nan, time 2.00ms",
    b"step 2: train loss 1.0, val loss inf",
    b"number of parameters: 1.00M",
    b"saving checkpoint to ",
    b"tokens per iteration will be: 7",
    b"Traceback (most recent call last):",
    b" ",
    b"x",
];

proptest! {
    #[test]
    fn any_cut_says_the_same(picks in prop::collection::vec(0..PIECES.len(), 0..40), cuts in prop::collection::vec(0_usize..400, 0..12)) {
        let bytes: Vec<u8> = picks.iter().flat_map(|pick| PIECES[*pick]).copied().collect();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([bytes.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let pieces: Vec<&[u8]> = starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect();
        prop_assert_eq!(read(pieces), read([&bytes[..]]));
        prop_assert_eq!(read(bytes.chunks(1)), read([&bytes[..]]));
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0_usize..300) {
        let (head, tail) = bytes.split_at(cut.min(bytes.len()));
        prop_assert_eq!(read([head, tail]), read([&bytes[..]]));
    }
}
