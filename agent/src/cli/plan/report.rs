//! A plan for a person: the answer first in words, then PyTorch's message, the phases, the peak, and what it all rests on.

use headroom_shared::{
    advice::{Advice, CodeChange, changes_text, patch_of},
    gpt::tensors::Category,
    hardware::Provenance,
    nanogpt::Severity,
    oom::shape,
    plan::{Oom, Plan, basis::Certainty, builtin::builtin},
    session::Finding,
    text,
    units::{human_size, pytorch_size},
};

use crate::cli::{
    fixes::fixes,
    style::{Bar, Ends, Ink, Style},
};

/// Cells of the widest bar; a wider one says no more.
const BAR_CELLS_MAX: usize = 48;
/// Cells below which a bar says nothing and is left out.
const BAR_CELLS_MIN: usize = 10;

/// The whole answer.
pub fn report(plan: &Plan, advice: &Advice, findings: &[Finding], style: &Style) -> String {
    let mut parts = vec![verdict(plan, style)];
    parts.extend(code_changes(plan, style));
    parts.extend(plan.oom.as_ref().map(|oom| message(oom, style)));
    parts.extend(fixes(plan, advice, style));
    parts.push(builtin_trainer(plan, style));
    parts.push(phases(plan, style));
    parts.push(peak(plan, style));
    parts.push(outside(plan, style));
    parts.push(basis(plan, style));
    if !findings.is_empty() {
        parts.push(notes(findings, style));
    }
    parts.join("\n")
}

/// "Fits on RTX 4070: 2.61 GiB left.", and whether that is sure.
fn verdict(plan: &Plan, style: &Style) -> String {
    let device = &plan.request.device;
    let card = match device.name.strip_prefix("GeForce ") {
        Some(model) => model.to_owned(),
        // Known by its memory alone, it has no name.
        None if device.sm_count.is_none() => format!("a card of {}", human_size(device.total_bytes)),
        None => device.name.to_string(),
    };
    let needed = CodeChange::needed_by(&plan.request.train);
    let with = |word: &str| match needed.is_empty() {
        true => String::new(),
        false => format!("{word} with {}", changes_text(&needed)),
    };
    let [low, high] = plan.basis.band_bytes;
    let by = human_size(plan.headroom_bytes.unsigned_abs());
    let (ink, answer, doubt) = match &plan.oom {
        None => (
            Ink::Fits,
            format!("Fits on {card}{}: {by} left.", with("")),
            (high > device.total_bytes).then(|| {
                format!("Close: at the upper end of the estimates it takes {} and does not fit.", human_size(high))
            }),
        ),
        Some(oom) => {
            let tensor = format!("{} {} {}", oom.tensor, shape(&oom.shape), oom.dtype.name());
            // Where it fails first is one thing, what the whole run lacks another.
            let answer = format!(
                "Does not fit on {card}{}: fails {} on {tensor}; the run needs {by} more.",
                with(", even"),
                oom.phase.text_in()
            );
            let doubt = (low <= device.total_bytes)
                .then(|| format!("Close: at the lower end of the estimates it takes {} and fits.", human_size(low)));
            (Ink::DoesNotFit, answer, doubt)
        }
    };
    let lines = style.wrapped(&answer, 0);
    let painted: String = lines.lines().map(|line| style.paint(ink, line) + "\n").collect();
    painted + &doubt.map_or_else(String::new, |doubt| style.wrapped(&doubt, 0))
}

/// What the plan assumes of nanoGPT's code, with the patch. The patch is copied, so it is neither wrapped nor indented.
fn code_changes(plan: &Plan, style: &Style) -> Option<String> {
    let needed = CodeChange::needed_by(&plan.request.train);
    if needed.is_empty() {
        return None;
    }
    let names: Vec<String> = needed.iter().map(|change| change.text().to_string()).collect();
    let lead = format!(
        "This plan assumes {}: {}. Unchanged code takes more memory than planned here. Save the lines below as \
         headroom.patch, then run `git apply headroom.patch` in nanoGPT's folder.",
        changes_text(&needed),
        names.join(", ")
    );
    let mut text = style.paint(Ink::Heading, "You still have to") + "\n" + &style.wrapped(&lead, 0);
    patch_of(&needed).lines().for_each(|line| text.push_str(&format!("{}\n", style.paint(Ink::Quiet, line))));
    Some(text)
}

fn message(oom: &Oom, style: &Style) -> String {
    let asked = format!(
        "PyTorch asks for {} with {} allocated, and says:",
        pytorch_size(oom.requested_bytes),
        pytorch_size(oom.allocated_bytes)
    );
    style.wrapped(&asked, 0) + &style.wrapped(&oom.message, 2)
}

/// The same run by `headroom train` on the card, and what it is held against.
fn builtin_trainer(plan: &Plan, style: &Style) -> String {
    let trainer = match builtin(&plan.request) {
        Ok(trainer) => trainer,
        Err(reason) => return style.wrapped(&format!("{}.", text::builtin_unsupported(reason)), 0),
    };
    let answer = trainer.text(plan.request.device.total_bytes).to_string() + ".";
    let detail = text::builtin_detail(text::size(trainer.allocated_bytes), text::size(plan.peak.max_allocated_bytes));
    let ink = if trainer.fits { Ink::Fits } else { Ink::DoesNotFit };
    let answer: String = style.wrapped(&answer, 0).lines().map(|line| style.paint(ink, line) + "\n").collect();
    answer + &style.wrapped(&detail.to_string(), 0) + &style.wrapped(text::english().word(text::BUILTIN_NEEDS), 0)
}

/// Peaks by phase: numbers, and a bar against the card.
fn phases(plan: &Plan, style: &Style) -> String {
    const NUMBERS: usize = 10;
    let device_bytes = plan.request.device.total_bytes;
    let outside_bytes = outside_bytes(plan);
    let name_columns =
        plan.phases.iter().map(|peak| peak.phase.text().to_string().len()).max().unwrap_or(0).max("phase".len());
    let fails = if plan.fits { "" } else { " fails" };
    let used = name_columns + 3 * (NUMBERS + 2) + 2 + fails.len();
    let cells = style.table_columns().saturating_sub(used + 1).min(BAR_CELLS_MAX);
    let bar = (cells >= BAR_CELLS_MIN).then_some(Bar {
        cells,
        card_bytes: device_bytes,
        largest_bytes: plan.peak.device_used_bytes,
    });
    let heading = if plan.fits { "By phase" } else { "By phase, as it would be with all the room it wants" };
    let mut text = style.paint(Ink::Heading, heading) + "\n";
    let columns =
        format!("{:name_columns$}  {:>NUMBERS$}  {:>NUMBERS$}  {:>NUMBERS$}", "", "live", "allocated", "reserved");
    let card = bar.map_or_else(String::new, |_| format!("  {} card", human_size(device_bytes)));
    text.push_str(&style.paint(Ink::Quiet, &(columns + &card)));
    text.push('\n');
    for peak in &plan.phases {
        let [live, allocated, reserved] =
            [peak.live_bytes, peak.max_allocated_bytes, peak.max_reserved_bytes].map(human_size);
        text.push_str(&format!(
            "{:name_columns$}  {live:>NUMBERS$}  {allocated:>NUMBERS$}  {reserved:>NUMBERS$}",
            peak.phase.text().to_string()
        ));
        if let Some(bar) = bar {
            let ends = Ends {
                outside_bytes,
                live_bytes: outside_bytes.saturating_add(peak.live_bytes),
                reserved_bytes: outside_bytes.saturating_add(peak.max_reserved_bytes),
            };
            text.push_str("  ");
            text.push_str(&bar.draw(ends, style));
        }
        if plan.oom.as_ref().is_some_and(|oom| oom.phase == peak.phase) {
            text.push_str(&style.paint(Ink::DoesNotFit, fails));
        }
        text.push('\n');
    }
    if bar.is_some() {
        text.push_str(&style.paint(Ink::Quiet, &legend(style)));
        text.push('\n');
    }
    text
}

fn legend(style: &Style) -> String {
    let glyphs = style.glyphs();
    format!(
        "{} outside PyTorch  {} live  {} reserved, not live  {} end of the card",
        glyphs.outside, glyphs.live, glyphs.reserved, glyphs.card
    )
}

/// What is live at the fullest moment.
fn peak(plan: &Plan, style: &Style) -> String {
    let peak = &plan.peak;
    let heading = format!("At the peak, {}", peak.phase.text_in());
    let mut text = style.paint(Ink::Heading, &heading) + "\n";
    let rows = Category::ALL.iter().zip(peak.by_category).filter(|(_, bytes)| *bytes > 0);
    let rows: Vec<(String, u64)> = rows.map(|(category, bytes)| (category.text().to_string(), bytes)).collect();
    for (name, bytes) in rows {
        text.push_str(&row(&name, &human_size(bytes), &share(bytes, peak.live_bytes), style));
    }
    text.push_str(&row("live", &human_size(peak.live_bytes), "100 %", style));
    text
}

/// What the card holds beside PyTorch's tensors, up to its end.
fn outside(plan: &Plan, style: &Style) -> String {
    let context = &plan.request.context;
    let band = if context.band_low == context.band_high {
        context.source.to_owned()
    } else {
        format!("{} to {}", human_size(context.band_low), human_size(context.band_high))
    };
    let others = plan.request.other_processes_bytes;
    let device = &plan.request.device;
    let mut text = style.paint(Ink::Heading, "On the whole card") + "\n";
    text.push_str(&row("PyTorch, reserved", &human_size(plan.peak.max_reserved_bytes), "", style));
    text.push_str(&row("CUDA context", &human_size(context.bytes), &band, style));
    text.push_str(&row(
        "other processes",
        &human_size(others),
        if others == 0 { "none given" } else { "as given" },
        style,
    ));
    let [low, high] = plan.basis.band_bytes.map(human_size);
    text.push_str(&row(
        "used at the peak",
        &human_size(plan.peak.device_used_bytes),
        &format!("{low} to {high}"),
        style,
    ));
    text.push_str(&row("card", &human_size(device.total_bytes), "", style));
    text
}

fn basis(plan: &Plan, style: &Style) -> String {
    let basis = &plan.basis;
    let card = match plan.request.device.total_provenance {
        Provenance::Measured { .. } => ("measured", "CUDA printed it on such a card"),
        Provenance::Estimated { .. } => ("estimated", "from the size on the box; --vram takes what CUDA reports"),
        Provenance::Given => ("given", "as on the command line"),
    };
    let allocated = match basis.allocated {
        Certainty::Exact => "every tensor, as in recorded runs of this kind",
        Certainty::Measured => "read off a card",
        Certainty::Estimated => "every tensor that is known; a part of them follows a rule",
    };
    let context = match basis.context {
        Certainty::Estimated => "by the card's architecture; --context-bytes takes what yours has",
        Certainty::Exact | Certainty::Measured => "as given",
    };
    let rows = [
        ("allocated", basis.allocated.name(), allocated),
        ("reserved", basis.reserved.name(), "a replica of PyTorch's allocator"),
        ("CUDA context", basis.context.name(), context),
        ("card", card.0, card.1),
    ];
    let mut text = style.paint(Ink::Heading, "What the figures rest on") + "\n";
    rows.iter().for_each(|(name, how, why)| text.push_str(&row(name, how, why, style)));
    text
}

fn notes(findings: &[Finding], style: &Style) -> String {
    let mut text = style.paint(Ink::Heading, "Worth knowing") + "\n";
    for finding in findings {
        let kind = if finding.severity == Severity::Note { "" } else { "warning: " };
        let place = finding.place.as_ref().map_or_else(String::new, |place| format!("{place}: "));
        text.push_str(&style.wrapped(&format!("{place}{kind}{}", finding.message), 0));
    }
    text
}

/// A name, a figure and a remark, in the columns that all small tables share; a long remark goes on below itself.
fn row(name: &str, figure: &str, remark: &str, style: &Style) -> String {
    let start = format!("{name:18}  {figure:>10}  ");
    let line = format!("{start}{remark}");
    if style.columns.is_none_or(|columns| line.chars().count() <= columns) {
        return format!("{}\n", line.trim_end());
    }
    let remark = style.wrapped(remark, start.len());
    format!("{start}{}", remark.trim_start())
}

fn outside_bytes(plan: &Plan) -> u64 {
    plan.request.other_processes_bytes.saturating_add(plan.request.context.bytes)
}

/// Rounded; what is there is never nothing, and what is not all of it is never all.
fn share(part: u64, whole: u64) -> String {
    let per_mille = u128::from(part) * 1000 / u128::from(whole.max(1));
    match per_mille {
        0..10 if part > 0 => " <1 %".to_owned(),
        _ if part < whole => format!("{:>3} %", ((per_mille + 5) / 10).min(99)),
        _ => "100 %".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_whole_only_where_it_is() {
        for (part, whole, expected) in [
            (1, 1000, " <1 %"),
            (10, 1000, "  1 %"),
            (999, 1000, " 99 %"),
            (10, 10, "100 %"),
            (1, 3, " 33 %"),
            (u64::MAX, u64::MAX, "100 %"),
        ] {
            assert_eq!(share(part, whole), expected, "{part} of {whole}");
        }
    }
}
