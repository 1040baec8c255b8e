//! Formats a plan for the terminal: the verdict, PyTorch's message, the phases, the peak, and the basis of the figures.

use headroom_planner::{
    advice::{Advice, CodeChange, changes_text, patch_of},
    gpt::tensors::Category,
    hardware::Provenance,
    nanogpt::Severity,
    oom::shape,
    plan::{Fit, Oom, Plan, RunOnMachine, basis::Certainty, builtin::builtin},
    session::Finding,
};
use headroom_text::{
    self as text,
    units::{human_size, pytorch_size},
};

use crate::cli::{
    fixes::fixes,
    style::{Bar, Ends, Ink, Style},
};

/// Width limit of a bar in cells.
const BAR_CELLS_MAX: usize = 48;
/// Minimum width of a bar in cells; narrower bars are omitted.
const BAR_CELLS_MIN: usize = 10;

/// Formats the whole answer.
pub fn report(plan: &Plan, advice: &Advice, findings: &[Finding], style: &Style) -> String {
    // A run on another device has no verdict of its own, so this comes first.
    let (devices, findings): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|finding| finding.key == "device");
    let mut parts: Vec<String> = devices.iter().map(|finding| other_device(finding, style)).collect();
    parts.push(verdict(plan, style));
    parts.extend(still_to_do(plan, style));
    parts.extend(plan.oom.as_ref().map(|oom| message(oom, style)));
    parts.extend(fixes(plan, advice, style));
    parts.push(builtin_trainer(plan, style));
    parts.push(phases(plan, style));
    parts.push(peak(plan, style));
    parts.push(outside(plan, style));
    parts.push(basis(plan, style));
    if !findings.is_empty() {
        parts.push(notes(&findings, style));
    }
    parts.join("\n")
}

/// The statement that the run uses no CUDA GPU, with the place of its device in the config.
fn other_device(finding: &Finding, style: &Style) -> String {
    let place = finding.place.as_ref().map_or_else(String::new, |place| format!(" ({place})"));
    let text = format!("This run needs no memory of a CUDA GPU: {}{place}.", finding.message);
    style.wrapped(&text, 0)
}

/// "Fits on RTX 4070: 2.61 GiB left.", and the certainty of that.
pub fn verdict(plan: &Plan, style: &Style) -> String {
    let needed = CodeChange::needed_by(&plan.request.train);
    let changes = (!needed.is_empty()).then(|| changes_text(&needed).to_string());
    let vocabulary = plan.request.given_vocab_size.map(|size| text::a_vocabulary_of(size).to_string());
    let needs: Vec<String> = changes.into_iter().chain(vocabulary).collect();
    verdict_with(plan, &needs, style)
}

/// The verdict of a run that needs these changes.
pub fn verdict_with<R: RunOnMachine>(plan: &Plan<R>, needs: &[String], style: &Style) -> String {
    let device = &plan.request.machine().device;
    let gpu = match device.name.strip_prefix("GeForce ") {
        Some(model) => model.to_owned(),
        // A GPU given by its memory has no name.
        None if device.sm_count.is_none() => format!("a GPU with {}", human_size(device.total_bytes)),
        None => device.name.to_string(),
    };
    let with = |word: &str| match needs.is_empty() {
        true => String::new(),
        false => format!("{word} with {}", needs.join(" and ")),
    };
    let [low, high] = plan.basis.band_bytes;
    let by = human_size(plan.headroom_bytes.unsigned_abs());
    let is_narrow = plan.fit() == Fit::Narrow;
    let (ink, answer, doubt) = match &plan.oom {
        None => (
            Ink::Fits,
            format!("Fits{} on {gpu}{}: {by} left.", if is_narrow { " narrowly" } else { "" }, with("")),
            is_narrow.then(|| {
                format!("Close: at the upper end of the estimates it takes {} and does not fit.", human_size(high))
            }),
        ),
        Some(oom) => {
            let tensor = format!("{} {} {}", oom.tensor, shape(&oom.shape), oom.dtype.name());
            // The place of the first failure and the shortfall of the whole run are separate facts.
            let answer = format!(
                "Does not fit on {gpu}{}: fails {} on {tensor}; the run needs {by} more.",
                with(", even"),
                oom.phase.text_in()
            );
            let doubt = (plan.headroom_band_bytes()[1] >= 0)
                .then(|| format!("Close: at the lower end of the estimates it takes {} and fits.", human_size(low)));
            (Ink::DoesNotFit, answer, doubt)
        }
    };
    let lines = style.wrapped(&answer, 0);
    let painted: String = lines.lines().map(|line| style.paint(ink, line) + "\n").collect();
    painted + &doubt.map_or_else(String::new, |doubt| style.wrapped(&doubt, 0))
}

/// What the plan assumes besides the config: the vocabulary of the data set, and changes to nanoGPT's code with their
/// patch. The patch is meant for copying, so it is neither wrapped nor indented.
fn still_to_do(plan: &Plan, style: &Style) -> Option<String> {
    let needed = CodeChange::needed_by(&plan.request.train);
    let vocabulary = plan.request.given_vocab_size;
    if needed.is_empty() && vocabulary.is_none() {
        return None;
    }
    let mut text = style.paint(Ink::Heading, "Still to do") + "\n";
    if let Some(size) = vocabulary {
        text.push_str(&style.wrapped(&text::vocabulary_to_do(size).to_string(), 0));
    }
    if needed.is_empty() {
        return Some(text);
    }
    let names: Vec<String> = needed.iter().map(|change| change.text().to_string()).collect();
    let lead = format!(
        "This plan assumes {}: {}. Unchanged code takes more memory than planned here. Save the lines below as \
         headroom.patch, then run `git apply headroom.patch` in nanoGPT's folder.",
        changes_text(&needed),
        names.join(", ")
    );
    text.push_str(&style.wrapped(&lead, 0));
    patch_of(&needed).lines().for_each(|line| text.push_str(&format!("{}\n", style.paint(Ink::Quiet, line))));
    Some(text)
}

pub fn message(oom: &Oom, style: &Style) -> String {
    let asked = format!(
        "PyTorch requests {} with {} allocated and prints:",
        pytorch_size(oom.requested_bytes),
        pytorch_size(oom.allocated_bytes)
    );
    style.wrapped(&asked, 0) + &style.wrapped(&oom.message, 2)
}

/// The same run under `headroom train` on this GPU, in comparison.
fn builtin_trainer(plan: &Plan, style: &Style) -> String {
    let trainer = match builtin(&plan.request) {
        Ok(trainer) => trainer,
        Err(reason) => return style.wrapped(&format!("{}.", text::builtin_unsupported(reason)), 0),
    };
    let answer = trainer.text(plan.request.machine().device.total_bytes).to_string() + ".";
    let detail = text::builtin_detail(text::size(trainer.allocated_bytes), text::size(plan.peak.max_allocated_bytes));
    let ink = if trainer.fits { Ink::Fits } else { Ink::DoesNotFit };
    let answer: String = style.wrapped(&answer, 0).lines().map(|line| style.paint(ink, line) + "\n").collect();
    answer
        + &style.wrapped(&detail.to_string(), 0)
        + &style.wrapped(headroom_languages::english().word(text::BUILTIN_NEEDS), 0)
}

/// Peaks by phase: figures, and a bar against the GPU's capacity.
pub fn phases<R: RunOnMachine>(plan: &Plan<R>, style: &Style) -> String {
    const NUMBERS: usize = 10;
    let device_bytes = plan.request.machine().device.total_bytes;
    let outside_bytes = outside_bytes(plan);
    let name_columns =
        plan.phases.iter().map(|peak| peak.phase.text().to_string().len()).max().unwrap_or(0).max("phase".len());
    let fails = if plan.fits { "" } else { " fails" };
    let used = name_columns + 3 * (NUMBERS + 2) + 2 + fails.len();
    let cells = style.table_columns().saturating_sub(used + 1).min(BAR_CELLS_MAX);
    let bar = (cells >= BAR_CELLS_MIN).then_some(Bar {
        cells,
        gpu_bytes: device_bytes,
        largest_bytes: plan.peak.device_used_bytes,
    });
    let heading = if plan.fits { "By phase" } else { "By phase, as it would be with all the room it wants" };
    let mut text = style.paint(Ink::Heading, heading) + "\n";
    let columns =
        format!("{:name_columns$}  {:>NUMBERS$}  {:>NUMBERS$}  {:>NUMBERS$}", "", "live", "allocated", "reserved");
    let gpu = bar.map_or_else(String::new, |_| format!("  {} GPU", human_size(device_bytes)));
    text.push_str(&style.paint(Ink::Quiet, &(columns + &gpu)));
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
        "{} outside PyTorch  {} live  {} reserved, not live  {} end of the GPU",
        glyphs.outside, glyphs.live, glyphs.reserved, glyphs.gpu
    )
}

/// Live memory at the peak.
pub fn peak<R: RunOnMachine>(plan: &Plan<R>, style: &Style) -> String {
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

/// Memory on the GPU besides PyTorch's tensors, up to the capacity.
pub fn outside<R: RunOnMachine>(plan: &Plan<R>, style: &Style) -> String {
    let context = &plan.request.machine().context;
    let band = if context.band_low == context.band_high {
        context.source.to_owned()
    } else {
        format!("{} to {}", human_size(context.band_low), human_size(context.band_high))
    };
    let others = plan.request.machine().other_processes_bytes;
    let device = &plan.request.machine().device;
    let mut text = style.paint(Ink::Heading, "On the whole GPU") + "\n";
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
    text.push_str(&row("GPU", &human_size(device.total_bytes), "", style));
    text
}

pub fn basis<R: RunOnMachine>(plan: &Plan<R>, style: &Style) -> String {
    let basis = &plan.basis;
    let gpu = match plan.request.machine().device.total_provenance {
        Provenance::Measured { .. } => ("measured", "printed by CUDA on this GPU model"),
        Provenance::Estimated { .. } => ("estimated", "from the size on the box; --vram takes what CUDA reports"),
        Provenance::Given => ("given", "as on the command line"),
    };
    let allocated = match basis.allocated {
        Certainty::Exact => "every tensor, as in recorded runs of this kind",
        Certainty::Measured => "measured on a GPU",
        Certainty::Estimated => "every tensor that is known; a part of them follows a rule",
    };
    let context = match basis.context {
        Certainty::Estimated => "from the GPU's architecture; pass yours with --context-bytes",
        Certainty::Exact | Certainty::Measured => "as given",
    };
    let rows = [
        ("allocated", basis.allocated.name(), allocated),
        ("reserved", basis.reserved.name(), "a replica of PyTorch's allocator"),
        ("CUDA context", basis.context.name(), context),
        ("GPU", gpu.0, gpu.1),
    ];
    let mut text = style.paint(Ink::Heading, "What the figures rest on") + "\n";
    rows.iter().for_each(|(name, how, why)| text.push_str(&row(name, how, why, style)));
    text
}

fn notes(findings: &[&Finding], style: &Style) -> String {
    let mut text = style.paint(Ink::Heading, "Worth knowing") + "\n";
    for finding in findings {
        let kind = if finding.severity == Severity::Note { "" } else { "warning: " };
        let place = finding.place.as_ref().map_or_else(String::new, |place| format!("{place}: "));
        text.push_str(&style.wrapped(&format!("{place}{kind}{}", finding.message), 0));
    }
    text
}

/// A name, a figure and a remark in the columns of all small tables. A long remark continues on the next lines.
fn row(name: &str, figure: &str, remark: &str, style: &Style) -> String {
    let start = format!("{name:18}  {figure:>10}  ");
    let line = format!("{start}{remark}");
    if style.columns.is_none_or(|columns| line.chars().count() <= columns) {
        return format!("{}\n", line.trim_end());
    }
    let remark = style.wrapped(remark, start.len());
    format!("{start}{}", remark.trim_start())
}

fn outside_bytes<R: RunOnMachine>(plan: &Plan<R>) -> u64 {
    plan.request.machine().outside_bytes()
}

/// Share in percent, rounded. A nonzero part is never 0 %, and an incomplete one never 100 %.
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
