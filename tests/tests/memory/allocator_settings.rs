//! Comparison of the allocator's settings with PyTorch's, without and with a limit of memory.
//!
//! tests/golden/c10/settings.csv and parsed.csv have the figures; the README there describes their origin.

use headroom_planner::memory::allocator::{AllocConf, AllocConfError, Allocator, SegmentKind, Settings as _};

use crate::{
    allocator_limited::{figures, replay_in},
    event_list::{Event, trace},
    records::{Row, rows},
};

/// Memory of a GPU without a limit in the rows.
const ENDLESS: u64 = 1 << 45;

/// Differences between the allocator and PyTorch's.
fn differences(row: &Row, events: &[Event]) -> Vec<String> {
    let conf: AllocConf = row.text("settings").parse().expect("settings that PyTorch accepts");
    let kind = if conf.expandable_segments { SegmentKind::Expandable } else { SegmentKind::Native };
    let [total, capacity] = ["total", "capacity"].map(|column| row.bytes(column).expect("a number of bytes"));
    let (failed, allocator) = replay_in(events, Allocator::with_settings(kind, capacity, conf.on_gpu(Some(total))));
    figures(failed, &allocator)
        .iter()
        .filter(|(column, ours)| *ours != row.bytes(column))
        .map(|(column, ours)| {
            let theirs = row.bytes(column);
            format!("{} {} in {capacity}: {column} {ours:?}, PyTorch's {theirs:?}", row.tag(), row.text("settings"))
        })
        .collect()
}

/// Differences of all rows of a file.
fn all_differences(rows: &[Row]) -> Vec<String> {
    let by_trace = rows.chunk_by(|a, b| a.tag() == b.tag());
    let found = by_trace.flat_map(|rows| {
        let events = trace(rows[0].tag()).events;
        rows.iter().flat_map(|row| differences(row, &events)).collect::<Vec<_>>()
    });
    found.collect()
}

#[test]
fn settings_take_what_pytorchs_allocator_takes() {
    let rows = rows("c10/settings");
    assert!(rows.len() > 1500, "{} rows", rows.len());
    let n_failing = rows.iter().filter(|row| row.bytes("failed_event").is_some()).count();
    assert!(n_failing > 500 && n_failing < rows.len() - 500, "{n_failing} of {} rows fail", rows.len());
    let endless = rows.iter().filter(|row| row.bytes("capacity") == Some(ENDLESS)).count();
    assert_eq!(endless * 5, rows.len());
    let found = all_differences(&rows);
    assert!(found.is_empty(), "{} differences, such as {:#?}", found.len(), &found[..found.len().min(20)]);
}

/// Settings that change no row: PyTorch collects only with a memory fraction, and never an expandable segment.
const WITHOUT_EFFECT: [&str; 2] = [
    "garbage_collection_threshold:0.6",
    "expandable_segments:True,garbage_collection_threshold:0.5,per_process_memory_fraction:0.9",
];

/// The settings change what is reserved, so a replica that ignores them would differ from the rows.
#[test]
fn every_setting_changes_some_row() {
    let rows = rows("c10/settings");
    let settings: std::collections::BTreeSet<_> = rows.iter().map(|row| row.text("settings")).collect();
    let figures = |row: &Row| row.bytes("max_memory_reserved");
    for setting in settings {
        let kind = setting.contains("expandable_segments:True");
        let mut changed = 0;
        for row in rows.iter().filter(|row| row.text("settings") == setting && row.tag().starts_with("eager_gpt2")) {
            let events = trace(row.tag()).events;
            let kind = if kind { SegmentKind::Expandable } else { SegmentKind::Native };
            let capacity = row.bytes("capacity").expect("a capacity");
            let (_, plain) = replay_in(&events, Allocator::new(kind, capacity));
            changed += u64::from(figures(row) != Some(plain.max_reserved_bytes()));
        }
        assert_eq!(changed == 0, WITHOUT_EFFECT.contains(&setting), "{setting}: {changed} rows change");
    }
}

/// What PyTorch parses, as `replay settings` of tests/record/settings prints it.
fn printed(conf: &AllocConf) -> String {
    let mut text = format!(
        "{},{},{},{},{},{}",
        conf.large_segment_bytes,
        conf.max_split_bytes,
        conf.max_non_split_rounding_bytes,
        conf.garbage_collection_threshold,
        u8::from(conf.expandable_segments),
        conf.per_process_memory_fraction,
    );
    for divisions in conf.roundup_divisions {
        text.push_str(&format!(",{divisions}"));
    }
    text
}

/// Difference between the parser and PyTorch's.
fn parse_difference(row: &Row) -> Option<String> {
    let (settings, theirs) = (row.text("settings"), row.text("parsed"));
    let parsed = settings.parse::<AllocConf>();
    let agrees = match (&parsed, theirs.strip_prefix("refused: ")) {
        (Ok(conf), None) => {
            // C prints a double with 17 digits.
            printed(conf) == theirs.replace("0.80000000000000004", "0.8")
        }
        (Err(AllocConfError::NotANumber { .. }), Some(message)) => message == "stoull" || message == "stod",
        (Err(AllocConfError::Incomplete { .. }), Some(message)) => message.contains("INTERNAL ASSERT FAILED"),
        (Err(AllocConfError::Refused(ours)), Some(message)) => ours.trim_end() == message.trim_end(),
        _ => false,
    };
    (!agrees).then(|| format!("{settings:?}: {parsed:?}, PyTorch's {theirs:?}"))
}

#[test]
fn parser_accepts_and_refuses_what_pytorch_does() {
    let rows = rows("c10/parsed");
    let n_refused = rows.iter().filter(|row| row.text("parsed").starts_with("refused")).count();
    assert!(n_refused > 30 && n_refused < rows.len() - 30, "{n_refused} of {} are refused", rows.len());
    assert_eq!(rows.iter().filter_map(parse_difference).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn must_find_a_falsified_setting() {
    let row = rows("c10/settings").into_iter().find(|row| row.bytes("failed_event").is_some()).expect("a failure");
    let events = trace(row.tag()).events;
    assert_eq!(differences(&row, &events), Vec::<String>::new());
    let reserved = row.bytes("memory_reserved").expect("a recorded figure");
    assert_eq!(differences(&row.with("memory_reserved", reserved + 512), &events).len(), 1);
}

/// With the GPU's finite address space, the replica equals PyTorch's also after expandable segments were unmapped.
#[test]
fn expandable_segments_end_with_the_address_space() {
    let limited = rows("c10/limited");
    let by_trace = limited.chunk_by(|a, b| a.tag() == b.tag());
    let found: Vec<_> = by_trace
        .flat_map(|rows| {
            let events = trace(rows[0].tag()).events;
            rows.iter().flat_map(|row| limited_differences(row, &events)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

/// Differences for a row of limited.csv, whose GPU reports its capacity as its size.
fn limited_differences(row: &Row, events: &[Event]) -> Vec<String> {
    let kind = if row.text("segments") == "native" { SegmentKind::Native } else { SegmentKind::Expandable };
    let capacity = row.bytes("capacity").expect("a capacity");
    let settings = AllocConf::default().on_gpu(Some(capacity));
    assert_eq!(settings.allowed_bytes(), None);
    let (failed, allocator) = replay_in(events, Allocator::with_settings(kind, capacity, settings));
    let differs = |(column, ours): &(&str, Option<u64>)| *ours != row.bytes(column);
    let found = figures(failed, &allocator).into_iter().filter(differs);
    found.map(|(column, ours)| format!("{} in {capacity}: {column} {ours:?}", row.tag())).collect()
}
