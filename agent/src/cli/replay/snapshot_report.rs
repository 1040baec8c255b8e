//! Formats what a memory snapshot of PyTorch shows for the terminal.

use headroom_planner::snapshot::{Check, DifferenceKind, Moment, OomEvent, Report, SiteAtPeak};
use headroom_text::units::human_size;

use crate::cli::style::{Ink, Style};

/// Number of listed places.
const LISTED: usize = 10;
/// Number of listed failures.
const LISTED_OOMS: usize = 5;

/// Formats the whole answer.
pub fn answer(report: &Report<'_>, style: &Style) -> String {
    let mut parts = vec![title(report, style), moments(report, style)];
    parts.extend(report.ooms.iter().take(LISTED_OOMS).map(|oom| failure(report, oom, style)));
    parts.extend([sites(report, style), remarks(report, style)]);
    parts.join("\n")
}

fn title(report: &Report<'_>, style: &Style) -> String {
    let duration = report.duration_us.map_or_else(String::new, |us| format!(" in {:.2} s", us as f64 / 1e6));
    let text = format!("Memory snapshot of GPU {}: {} events{duration}", report.device, report.n_events);
    style.paint(Ink::Heading, &text) + "\n"
}

/// Memory at four moments.
fn moments(report: &Report<'_>, style: &Style) -> String {
    let head = format!("{:24} {:>12} {:>12} {:>12} {:>12}", "", "allocated", "reserved", "free", "largest free");
    let mut text = style.paint(Ink::Quiet, &head) + "\n";
    let rows = [
        ("before the trace", report.before),
        ("peak of allocated", report.peak_allocated),
        ("peak of reserved", report.peak_reserved),
        ("end of the trace", report.end),
    ];
    for (name, Moment { allocated_bytes, reserved_bytes, free, .. }) in rows {
        let [allocated, reserved, free, largest] =
            [allocated_bytes, reserved_bytes, free.bytes, free.largest_bytes].map(human_size);
        text.push_str(&format!("{name:24} {allocated:>12} {reserved:>12} {free:>12} {largest:>12}\n"));
    }
    text
}

fn failure(report: &Report<'_>, oom: &OomEvent, style: &Style) -> String {
    let OomEvent { moment, requested_bytes, device_free_bytes, stack } = oom;
    let [requested, device_free, allocated, reserved, free, largest] = [
        *requested_bytes,
        *device_free_bytes,
        moment.allocated_bytes,
        moment.reserved_bytes,
        moment.free.bytes,
        moment.free.largest_bytes,
    ]
    .map(human_size);
    let place = report.snapshot.user_frame(*stack).map_or_else(String::new, |frame| format!(" at {}", frame.place()));
    let limit = match device_free_bytes >= requested_bytes {
        true => " The GPU had room: a limit of the process refused the request.",
        false => "",
    };
    style.paint(Ink::DoesNotFit, &format!("Out of memory after event {}", moment.n_events))
        + "\n"
        + &style.wrapped(
            &format!(
                "{requested} were requested from the driver{place}, and the GPU had {device_free} free.{limit} PyTorch \
                 had allocated {allocated} and reserved {reserved}. {free} of that were free, and the largest free block had \
                 {largest}."
            ),
            0,
        )
}

fn sites(report: &Report<'_>, style: &Style) -> String {
    let mut text = style.paint(Ink::Heading, "Largest live blocks at the peak of allocated memory") + "\n";
    for site in report.sites.iter().take(LISTED) {
        text.push_str(&row(site, style));
    }
    let rest = report.sites.iter().skip(LISTED).fold(0_u64, |sum, site| sum.saturating_add(site.bytes));
    if rest > 0 {
        text.push_str(&format!("{:>10}  {} others\n", human_size(rest), report.sites.len() - LISTED));
    }
    text
}

fn row(site: &SiteAtPeak<'_>, style: &Style) -> String {
    let SiteAtPeak { inner, library, user, count, bytes, is_before, .. } = site;
    let blocks = counted(*count, "block");
    let inner = inner.map_or("no stack", |frame| frame.name);
    let library = library.filter(|frame| Some(*frame) != *user);
    let places = [library, *user].into_iter().flatten().map(|frame| format!(", {}", frame.place()));
    let place: String = places.collect();
    let before = if *is_before { ", live before the trace" } else { "" };
    let start = format!("{:>10}  ", human_size(*bytes));
    let wrapped = style.wrapped(&format!("{inner}: {blocks}{place}{before}"), start.len());
    format!("{start}{}", wrapped.trim_start())
}

fn remarks(report: &Report<'_>, style: &Style) -> String {
    let mut lines = Vec::new();
    let settings = &report.snapshot.settings;
    lines.push(match settings.text.as_str() {
        "" => "The allocator has its default settings.".to_owned(),
        text => format!("The allocator has the settings {text}."),
    });
    if report.n_blocks_before > 0 {
        lines.push(format!("Live before the trace: {}.", counted(report.n_blocks_before, "block")));
    }
    for pool in &report.pools {
        let [reserved, allocated] = [pool.reserved_bytes, pool.allocated_bytes].map(human_size);
        let (a, b) = pool.id;
        lines.push(format!(
            "The private pool ({a}, {b}) has {reserved} in {}, with {allocated} allocated.",
            counted(pool.n_segments, "segment")
        ));
    }
    if report.n_streams > 1 {
        lines.push(format!("{} streams allocate memory.", report.n_streams));
    }
    if report.n_contradictions > 0 {
        lines.push(format!(
            "The segments of the snapshot contradict {}.",
            counted(report.n_contradictions as u64, "event")
        ));
    }
    if report.snapshot.n_devices() > 1 {
        lines.push("The snapshot has other GPUs too. This one has the most events.".to_owned());
    }
    lines.push(comparison(&report.check));
    let text: String = lines.iter().map(|line| style.wrapped(line, 0)).collect();
    style.paint(Ink::Heading, "Worth knowing") + "\n" + &text
}

/// The comparison with the replica of the allocator.
fn comparison(check: &Check) -> String {
    let Check { n_allocations, n_segments, difference, obstacle } = check;
    if let Some(obstacle) = obstacle {
        return format!("Headroom's allocator was not compared with the trace: {obstacle}.");
    }
    let Some(difference) = difference else {
        return format!(
            "Headroom's allocator agrees with the trace: the addresses of {}, and {}.",
            counted(*n_allocations, "block"),
            counted(*n_segments, "segment")
        );
    };
    let (recorded, replica) = (difference.recorded, difference.replica);
    let what = match difference.kind {
        DifferenceKind::Address => format!("places a block at 0x{replica:x} instead of 0x{recorded:x}"),
        DifferenceKind::Reserved => format!("reserves {replica} instead of {recorded} bytes"),
        DifferenceKind::Released => format!("releases {replica} instead of {recorded} bytes"),
        DifferenceKind::Failure => format!("serves a request of {recorded} bytes that failed"),
    };
    format!(
        "Headroom's allocator agrees on {}. At event {}, it {what}.",
        counted(*n_allocations, "block"),
        difference.event
    )
}

/// A number of things, as in `1 block` or `2 blocks`.
fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
