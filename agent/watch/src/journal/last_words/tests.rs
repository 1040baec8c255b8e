//! Tests of last words: Python's tracebacks, launchers, and other programs.

use super::{super::handled::HANDLED_AFTER, *};

fn words(text: &str) -> Option<String> {
    let mut words = LastWords::default();
    text.lines().for_each(|line| words.push(line));
    words.take().map(|(_, words)| words)
}

/// A traceback of two frames, with `tag` before each line.
fn traceback(tag: &str, exception: &str) -> String {
    let lines =
        ["Traceback (most recent call last):", "  File \"train.py\", line 7, in <module>", "    main()", exception];
    lines.map(|line| format!("{tag}{line}\n")).concat()
}

/// What torchrun prints after a failed process of a rank.
fn torchrun(rank: usize) -> String {
    let table = format!(
        "============================================================\ntrain.py FAILED\n\
         ------------------------------------------------------------\nFailures:\n[1]:\n  time      : 2026-11-23_06:00:00\n  \
         rank      : {} (local_rank: {})\n  exitcode  : -15 (pid: 8)\n\
         ------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n  \
         time      : 2026-11-23_06:00:00\n  host      : box\n  rank      : {rank} (local_rank: {rank})\n  \
         exitcode  : 1 (pid: 7)\n  error_file: <N/A>\n  traceback : To enable traceback see: https://example.org\n\
         ============================================================\n",
        rank + 1,
        rank + 1
    );
    let log = "E1123 06:00:00.000000 6 torch/distributed/elastic/multiprocessing/api.py:897] failed (exitcode: 1)\n";
    let error = traceback("", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ");
    format!("{log}{error}{table}")
}

#[test]
fn long_traceback_keeps_the_innermost_frames_and_the_exception() {
    let frames: String = (0..50).map(|i| format!("  File \"m{i}.py\", line {i}, in f\n    g()\n")).collect();
    let text = format!("step 1\nTraceback (most recent call last):\n{frames}KeyError: 'wte'\n\n");
    let said = words(&text).expect("words");
    assert!(said.starts_with("Traceback (most recent call last):\n  …\n"), "{said}");
    assert!(said.ends_with("  File \"m49.py\", line 49, in f\n    g()\nKeyError: 'wte'"), "{said}");
    assert!(said.lines().count() <= 14 && !said.contains("step 1"), "{said}");
}

#[test]
fn chained_exceptions_show_the_first_and_the_last() {
    let direct = "\nThe above exception was the direct cause of the following exception:\n\n";
    let other = "\nDuring handling of the above exception, another exception occurred:\n\n";
    let [first, second, third] =
        ["FileNotFoundError: no.bin", "KeyError: 'no'", "RuntimeError: cannot load"].map(|line| traceback("", line));
    let said = words(&format!("{first}{direct}{second}")).expect("words");
    assert_eq!(said, format!("{first}{direct}{second}").trim_end());
    let said = words(&format!("{first}{other}{second}{direct}{third}")).expect("words");
    assert_eq!(said, format!("{first}\n  …{direct}{third}").trim_end());
}

#[test]
fn several_processes_show_the_exception_that_came_first() {
    let [first, second, third] =
        ["ValueError: cause", "ConnectionResetError: peer", "BrokenPipeError: pipe"].map(|line| traceback("", line));
    let said = words(&format!("{first}{second}{third}")).expect("words");
    assert_eq!(said, format!("{first}\n{third}").trim_end());
    // Processes that fail alike.
    let said = words(&first.repeat(8)).expect("words");
    assert_eq!(said, first.trim_end());
    // The exception of a launcher follows those of its processes.
    let launcher = traceback("", "subprocess.CalledProcessError: Command '['python', 'train.py']' returned 1");
    let said = words(&format!("{first}{second}{launcher}")).expect("words");
    assert_eq!(said, format!("{first}\n{second}").trim_end());
    // The first one remains whole if there is no room for both.
    let long = format!("{}: x", "LongError".repeat(40));
    let frames = format!("  File {}\n", "x".repeat(390)).repeat(9);
    let said = words(&format!("{first}Traceback (most recent call last):\n{frames}{long}\n")).expect("words");
    assert_eq!(said, first.trim_end());
}

#[test]
fn launchers_exception_gives_way_to_that_of_the_process() {
    let ranks = ["[rank0]: ", "[rank1]: "].map(|tag| traceback(tag, &format!("ValueError: of {tag}")));
    // The processes write at the same time.
    let both: String = ranks[0].lines().zip(ranks[1].lines()).map(|(a, b)| format!("{a}\n{b}\n")).collect();
    for first in [0, 1] {
        let said = words(&format!("{both}{}", torchrun(first))).expect("words");
        assert_eq!(said, ranks[first].trim_end());
    }
    // torchrun's own tags, with `--tee 3`.
    let ranks = ["[default0]:", "[default1]:"].map(|tag| traceback(tag, "ValueError: x"));
    let said = words(&format!("{}{}", ranks.concat(), torchrun(1))).expect("words");
    assert_eq!(said, ranks[1].trim_end());
    // Before its rank is known, a process writes no tag.
    let plain = traceback("", "ModuleNotFoundError: No module named 'tiktoken'");
    assert_eq!(words(&format!("{plain}{}", torchrun(0))).as_deref(), Some(plain.trim_end()));
    let called = traceback("", "subprocess.CalledProcessError: Command '['python', 'train.py']' returned 1");
    assert_eq!(words(&format!("{plain}{called}")).as_deref(), Some(plain.trim_end()));
    assert_eq!(words(&called).as_deref(), Some(called.trim_end()));
    assert!(words(&torchrun(0)).is_some_and(|said| said.contains("ChildFailedError")));
}

#[test]
fn further_lines_do_not_hide_the_exception() {
    let traceback = traceback("", "ValueError: x");
    let further: String = (0..1000).map(|i| format!("wandb: line {i}\n")).collect();
    let said = words(&format!("{traceback}{further}")).expect("words");
    assert!(said.starts_with(traceback.trim_end()) && said.lines().count() < 20, "{said}");
    let further: String = (0..150).map(|i| format!("  usage {i}\n")).collect();
    let said = words(&format!("start\nmy_trainer: fatal: no GPU\n{further}")).expect("words");
    assert!(said.starts_with("my_trainer: fatal: no GPU\n…\n") && said.ends_with("  usage 149"), "{said}");
}

#[test]
fn exception_that_the_program_handles_is_dropped() {
    let mut words = LastWords::default();
    let push = |words: &mut LastWords, text: &str| text.lines().for_each(|line| words.push(line));
    push(&mut words, &traceback("", "ValueError: handled"));
    // Buffered figures arrive at once at the end.
    words.clear_lines();
    words.figures(Duration::from_secs(10));
    words.figures(Duration::from_secs(11));
    assert!(!words.tracebacks.is_empty());
    words.figures(Duration::from_secs(10) + HANDLED_AFTER);
    assert!(words.tracebacks.is_empty());
    push(&mut words, &traceback("", "KeyError: last"));
    words.figures(Duration::from_secs(100));
    assert!(words.take().is_some_and(|(kind, said)| kind == Kind::Exception && said.ends_with("KeyError: last")));
}

#[test]
fn other_program_keeps_its_last_lines() {
    let text: String = (0..500).map(|i| format!("line {i}\n")).collect();
    let said = words(&text).expect("words");
    assert_eq!((said.lines().next(), said.lines().last()), (Some("line 490"), Some("line 499")));
    assert_eq!(words("  5%|#    |\r 99%|#### |\n\u{1b}[31mnot found\n").as_deref(), Some(" 99%|#### |\n[31mnot found"));
    assert_eq!(words("\n \n"), None);
    let long = words(&"é".repeat(10_000)).expect("words");
    assert_eq!(long.len(), LINE_BYTES_MAX);
    let many = "x".repeat(5000) + "\n";
    assert!(words(&many.repeat(300)).expect("words").len() <= BYTES_MAX);
    // A traceback of more bytes than are returned keeps its end.
    let frames = format!("  File {}\n", "x".repeat(390)).repeat(30);
    let said = words(&format!("Traceback (most recent call last):\n{frames}KeyError: 1\n")).expect("words");
    assert!(said.len() <= BYTES_MAX && said.ends_with("KeyError: 1"), "{said}");
}

#[test]
fn figures_after_an_error_message_keep_it() {
    let mut words = LastWords::default();
    words.push("loading data");
    words.push("error: disk gone");
    for iter in 0..3 {
        words.push(&format!("iter {iter}: loss 1.0, time 1.00ms"));
        words.figures(Duration::from_secs(10));
        words.clear_lines();
    }
    assert_eq!(words.take(), Some((Kind::Error, "error: disk gone".to_owned())));
    // An error that the run survived is not the cause of its end.
    words.push("error: retry");
    words.figures(Duration::from_secs(10));
    words.figures(Duration::from_secs(10) + HANDLED_AFTER);
    words.clear_lines();
    assert_eq!(words.take(), None);
}
