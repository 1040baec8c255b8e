//! How long it takes to read what somebody pasted: the bar is 50 ms for 5 MB, native, whatever the text.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use headroom_planner::oom::{MAX_INPUT_BYTES, read};
use std::hint::black_box;

const MESSAGE: &str = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a \
                       total capacity of 11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this \
                       process has 7.04 GiB memory in use. Of the allocated memory 6.78 GiB is allocated by PyTorch, \
                       and 39.14 MiB is reserved by PyTorch but unallocated.\n";

fn filled(with: &str) -> String {
    with.repeat(MAX_INPUT_BYTES / with.len())
}

fn texts(criterion: &mut Criterion) {
    let log = "[rank0]: 2024-05-14 23:55:39,233 - INFO - iter 1200: loss 3.1415, time 260.44ms, mfu 41.21%\n";
    let mut group = criterion.benchmark_group("oom");
    group.throughput(Throughput::Bytes(MAX_INPUT_BYTES as u64));
    for (name, text) in [
        ("a log with a message at its end", filled(log) + MESSAGE),
        ("nothing but messages", filled(MESSAGE)),
        ("words of a message", filled("CUDA out of memory. ")),
        ("requests", filled("CUDA out of memory. Tried to allocate 2.00 GiB ")),
        ("one line", filled("x = 1; ")),
        ("statuses", filled("RESOURCE_EXHAUSTED: ")),
        ("brackets", filled("[")),
        ("short lines", filled("[\n")),
        ("colours", filled("\u{1b}]")),
        ("ten times as long", filled(log).repeat(10)),
        // Each byte of these ends eight that pass the filter of phrases.
        ("colons", filled(":")),
        ("what only looks like a phrase", filled("4}9")),
        ("ends of phrases", filled("ofmemoryatusized")),
        // A look reads on until it has so many bytes that are no blanks.
        ("statuses far apart", filled(&("RESOURCE_EXHAUSTED:".to_owned() + &" ".repeat(1000)))),
        ("words far apart", filled(&("out of memory".to_owned() + &" ".repeat(230)))),
        ("words on lines of their own", filled("out of memory\n(pid=1)[rank0]: \n")),
        ("nothing but blanks", filled(" ")),
        ("line breaks", filled("\n")),
        ("prefixes", filled("[rank0]: ")),
        ("prefixes on lines of their own", filled("[rank0]: [INFO]\n")),
        ("dates on lines of their own", filled("2024-05-14 23:55:39,233 - ERROR - a\n")),
        (
            "brackets that stay open",
            filled("[aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"),
        ),
        ("whole colours", filled("\u{1b}[1;31m")),
        ("colours that stay open", filled("\u{1b}[0;")),
        ("entities", filled("&")),
        ("escapes", filled("\\u001b[")),
        ("frames of tables", filled("│")),
        ("a traceback", filled("Traceback (most recent call last):\n  File \"train.py\", line 1, in backward\n")),
        ("killed", filled("Killed\n")),
    ] {
        group.bench_function(name, |bencher| bencher.iter(|| read(black_box(&text))));
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).without_plots();
    targets = texts
}
criterion_main!(benches);
