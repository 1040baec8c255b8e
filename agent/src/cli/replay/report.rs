//! Formats a replay for the terminal.

use headroom_planner::{
    oom::shape,
    plan::{Plan, RunOnMachine as _},
    recording::{LiveGroup, ReplayRequest, SizeOfRun},
};
use headroom_text::{Text, units::human_size};

use crate::cli::{
    plan::report,
    style::{Ink, Style},
};

/// Number of listed tensors.
const LISTED: usize = 10;

/// Formats the whole answer.
///
/// `largest_size` is the largest size of the run's series that fits, and `remarks` are on the options.
pub fn answer(plan: &Plan<ReplayRequest>, largest_size: Option<u64>, remarks: &[String], style: &Style) -> String {
    let mut parts = vec![report::verdict_with(plan, &[], style)];
    if let Some(SizeOfRun { variable, size, .. }) = &plan.request.size {
        let fits = match largest_size {
            Some(largest) => format!("the largest that fits is {largest}"),
            None => "no other fits".to_owned(),
        };
        parts.push(style.wrapped(&format!("This is {variable} {size}; {fits}."), 0));
    }
    if let Some(oom) = &plan.oom {
        let place = plan.failing_source().map(|source| style.wrapped(&format!("The tensor is that of {source}."), 0));
        parts.push(place.unwrap_or_default() + &report::message(oom, style));
        parts.extend(settings_that_fit(plan, style));
    }
    parts.extend([report::phases(plan, style), report::peak(plan, style), largest(plan, style)]);
    parts.extend([report::outside(plan, style), report::basis(plan, style)]);
    let of_run: Vec<String> = plan.request.remarks().iter().map(Text::to_string).collect();
    let remarks: String = remarks.iter().chain(&of_run).map(|remark| style.wrapped(remark, 0)).collect();
    parts.push(style.paint(Ink::Heading, "Worth knowing") + "\n" + &remarks);
    parts.join("\n")
}

/// Settings of the allocator with which the run fits, a line each.
fn settings_that_fit(plan: &Plan<ReplayRequest>, style: &Style) -> Option<String> {
    let variables = variables_that_fit(plan);
    let heading = style.paint(Ink::Heading, "Fits with another setting of the allocator, simulated alone");
    let lines = variables.iter().map(|variable| format!("  {variable}\n"));
    (!variables.is_empty()).then(|| lines.fold(heading + "\n", |text, line| text + &line))
}

/// Environment variables with which the run fits.
pub fn variables_that_fit(plan: &Plan<ReplayRequest>) -> Vec<String> {
    let name = plan.request.machine().torch.allocator_variable();
    plan.settings_that_fit().into_iter().map(|settings| format!("{name}={settings}")).collect()
}

/// The tensors with the most bytes at the peak, one row for all blocks.
fn largest(plan: &Plan<ReplayRequest>, style: &Style) -> String {
    let groups = plan.largest_at_peak();
    let mut text = style.paint(Ink::Heading, "Largest live tensors at the peak") + "\n";
    for group in groups.iter().take(LISTED) {
        text.push_str(&row(group, style));
    }
    let rest: u64 = groups.iter().skip(LISTED).map(|group| group.bytes).sum();
    if rest > 0 {
        text.push_str(&format!("{:>10}  {} others\n", human_size(rest), groups.len() - LISTED));
    }
    text
}

fn row(group: &LiveGroup, style: &Style) -> String {
    let LiveGroup { tensor, count, bytes, layers } = group;
    let name = tensor.stored.name_in(blocks(layers).as_deref());
    let times = if *count > 1 { format!("{count} × ") } else { String::new() };
    let source = tensor.stored.source();
    let place = if source.is_empty() { String::new() } else { format!(", {source}") };
    let what = format!("{name}: {times}{} {}{place}", shape(&tensor.shape), tensor.dtype.name());
    let start = format!("{:>10}  ", human_size(*bytes));
    let wrapped = style.wrapped(&what, start.len());
    format!("{start}{}", wrapped.trim_start())
}

/// The numbers of blocks, as `3`, `0–11` or `*` for several with gaps.
fn blocks(layers: &[u64]) -> Option<String> {
    match layers {
        [] => None,
        [only] => Some(only.to_string()),
        [first, .., last] if last - first + 1 == layers.len() as u64 => Some(format!("{first}–{last}")),
        _ => Some("*".to_owned()),
    }
}
