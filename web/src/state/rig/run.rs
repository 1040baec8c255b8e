//! The facts in a run's panel: its status, speed, remaining time, and cost.

use headroom_protocol::{
    alert::Settings,
    run::{Batches, Cause, Contradiction, Figure, Run, RunRequest, RunStatus},
};
use headroom_text::decimal;

use super::{
    Rig, ShownRun, energy, is_at_work,
    processes::why_no_bytes,
    values::{BLANK, Fact, duration, value, why},
};
use crate::{
    state::{
        format,
        rig_charts::scale::{figure, loss},
    },
    text::{self, Key, say, t},
};

/// The run to show by default: the newest active one, else the newest.
pub fn current(rig: &Rig) -> Option<&ShownRun> {
    rig.runs.iter().find(|watched| is_at_work(&watched.run)).or_else(|| rig.runs.first())
}

/// The status of a run, in words.
pub fn status(status: RunStatus) -> String {
    // The cause of a failure is more informative than its number.
    match status.cause() {
        Some(Cause::OutOfGpuMemory) => return t(text::RIG_OOM).to_owned(),
        Some(Cause::OutOfHostMemory) => return t(text::RIG_OOM_HOST).to_owned(),
        Some(Cause::GpuError) => return t(text::RIG_CARD_ERROR).to_owned(),
        Some(Cause::Diverged) => return t(text::RIG_DIVERGED).to_owned(),
        Some(Cause::Stopped) => return t(text::RIG_STOPPED).to_owned(),
        Some(Cause::Unqueued) => return t(text::RIG_UNQUEUED).to_owned(),
        Some(Cause::Other) | None => {}
    }
    match status {
        RunStatus::Running => t(text::RIG_RUNNING).to_owned(),
        RunStatus::Queued => t(text::RIG_QUEUED).to_owned(),
        RunStatus::Stalled { .. } => t(text::RIG_STALLED).to_owned(),
        RunStatus::Exited { code: 0, .. } => t(text::RIG_DONE).to_owned(),
        RunStatus::Exited { code, .. } => say(&text::rig_exited(code.to_string())),
        RunStatus::Killed { signal, .. } => say(&text::rig_killed(signal.to_string())),
        RunStatus::Lost => t(text::RIG_RUN_LOST).to_owned(),
    }
}

/// A style name for the status of a run.
pub const fn look(run: &Run) -> &'static str {
    match run.status {
        status if matches!(status.cause(), Some(Cause::Stopped | Cause::Unqueued)) => "ended",
        RunStatus::Running => "live",
        RunStatus::Stalled { .. } | RunStatus::Queued => "stale",
        RunStatus::Exited { code: 0, .. } => "done",
        _ => "failed",
    }
}

/// The reason why a run has no prediction: its printed figures contradict its config. `None` if they do not.
pub fn unplanned(run: &Run) -> Option<String> {
    let Contradiction { figure, printed, planned } = run.contradiction?;
    let number = |value, decimals| text::table().number(&decimal::fixed(value, decimals));
    Some(say(&match figure {
        Figure::ParametersMillions => text::rig_other_parameters(number(printed, 2), number(planned, 2)),
        Figure::TokensPerIteration => text::rig_other_tokens(number(printed, 0), number(planned, 0)),
    }))
}

/// The completed share of a run, from 0 to 1.
pub fn share_done(run: &Run) -> Option<f64> {
    let (last, max) = (run.last?.iter, run.max_iters.filter(|max| *max > 0)?);
    Some((last as f64 / max as f64).min(1.0))
}

/// The time to the last iteration in milliseconds, at the pace of the newest one.
pub fn left_ms(run: &Run) -> Option<u64> {
    if run.status.has_ended() {
        return None;
    }
    let (last, max) = (run.last?, run.max_iters.filter(|max| run.last.is_none_or(|last| last.iter <= *max))?);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let left_ms = (max.saturating_sub(last.iter) as f64 * last.time_ms.max(0.0)) as u64;
    Some(left_ms)
}

/// The facts of a run. `recorded_joules` is the energy from its GPU's history.
pub fn facts(run: &Run, settings: &Settings, recorded_joules: Option<f64>, now_ms: u64) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name, value: String, note: String| facts.push(Fact { name, value, note });
    if let Some(last) = &run.last {
        let iter = format::grouped(last.iter);
        let (of, note) = match run.max_iters {
            Some(max) if last.iter > max => (iter, say(&text::rig_past(format::grouped(max)))),
            Some(max) => (say(&text::rig_of(iter, format::grouped(max))), String::new()),
            None => (iter, String::new()),
        };
        add(text::RIG_ITERATION, of, note);
        let loss = last.loss.map_or_else(|| t(text::RIG_NO_LOSS).to_owned(), loss);
        add(text::RIG_LOSS, loss, String::new());
        for (name, value) in
            [(text::RIG_LEARNING_RATE, last.learning_rate), (text::RIG_GRADIENT_NORM, last.gradient_norm)]
        {
            if let Some(value) = value {
                add(name, figure(value), String::new());
            }
        }
        if let Some(tokens) = last.tokens_per_second {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
            let tokens = format::grouped(tokens.max(0.0) as u64);
            add(text::RIG_TOKENS, tokens, String::new());
        }
        // An MFU printed on the CPU is not a share of a GPU's peak rate.
        let of_gpu = |percent: Option<f64>| percent.filter(|_| !is_on_cpu(run));
        match (of_gpu(last.mfu_percent), of_gpu(last.mfu_printed_percent)) {
            (Some(mfu), printed) => {
                let note =
                    printed.map(|printed| say(&text::rig_mfu_printed(value(printed, 1, "%")))).unwrap_or_default();
                add(text::RIG_MFU, value(mfu, 1, "%"), note);
            }
            (None, Some(printed)) => add(text::RIG_MFU_OF_A100, value(printed, 1, "%"), String::new()),
            (None, None) => {}
        }
    }
    if let Some(evaluation) = &run.last_evaluation
        && let Some(val) = evaluation.val_loss
    {
        add(text::RIG_VAL_LOSS, loss(val), say(&text::rig_at_iteration(format::grouped(evaluation.iter))));
    }
    if let Some(Batches { done, of }) = run.evaluating {
        add(text::RIG_EVALUATING, say(&text::rig_batches(format::grouped(done), format::grouped(of))), String::new());
    }
    if let Some(left_ms) = left_ms(run) {
        add(text::RIG_TIME_LEFT, format!("≈{}{}", BLANK, duration(left_ms)), String::new());
    }
    if let Some(took_ms) = run.took_ms(now_ms) {
        add(text::RIG_DURATION, duration(took_ms), String::new());
    }
    if let Some(peak) = run.gpu_memory_peak_bytes {
        let note =
            run.plan.as_ref().map(|plan| say(&text::rig_planned(format::size(plan.peak_bytes)))).unwrap_or_default();
        add(text::RIG_PEAK, format::size(peak), note);
    }
    if let Some(plan) = run.plan.as_ref().filter(|plan| plan.is_builtin) {
        let note = match &plan.recompute {
            Some(level) => say(&text::rig_builtin_level(text::message(level))),
            None => t(text::RIG_BUILTIN).to_owned(),
        };
        add(text::RIG_BUILTIN_PLAN, format::size(plan.max_memory_allocated), note);
    }
    facts.extend(energy::facts(run, settings, recorded_joules));
    facts.extend(run.order.as_ref().map(ordered).unwrap_or_default());
    facts
}

/// The order that a run was started with.
fn ordered(order: &RunRequest) -> Vec<Fact> {
    let names = [
        (text::RIG_CONFIG, Some(&order.config)),
        (text::RIG_DATASET, order.dataset.as_ref()),
        (text::RIG_DEVICE, order.device.as_ref()),
    ];
    let fact = |(name, value): (Key, Option<&String>)| Some(Fact { name, value: value?.clone(), note: String::new() });
    names.into_iter().filter_map(fact).collect()
}

/// The facts of an active run that are unknown because its GPU lacks the readings: each with a dash and the reason.
pub fn not_given(rig: &Rig, run: &Run) -> Vec<Fact> {
    let Some(gpu) = run.gpus.first().and_then(|uuid| rig.gpu(uuid)).filter(|_| is_at_work(run)) else {
        return vec![];
    };
    let power = gpu.sample.as_ref().and_then(|sample| sample.power_watts.why());
    let memory = run.gpu_memory_peak_bytes.is_none().then(|| why_no_bytes(gpu, &run.id)).flatten();
    [(text::RIG_PEAK, memory), (text::RIG_ENERGY, power.filter(|_| run.energy_joules.is_none()))]
        .into_iter()
        .filter_map(|(name, reason)| Some(Fact { name, value: "–".to_owned(), note: why(reason?).to_owned() }))
        .collect()
}

/// The text instead of a loss chart, for a run without losses that has ended or is queued.
pub fn without_losses(watched: &ShownRun) -> Option<Key> {
    let status = watched.run.status;
    match watched.is_whole && watched.losses.is_empty() {
        true if status.has_ended() => Some(text::LOSSES_NEVER),
        true if status == RunStatus::Queued => Some(text::LOSSES_NONE),
        _ => None,
    }
}

/// Returns whether a run trains on the CPU, by its order, its command or its config. The last value of a source
/// applies.
fn is_on_cpu(run: &Run) -> bool {
    let said = |line: &str| {
        let (key, value) = line.split_once('=')?;
        // `Overriding: device = cpu` is nanoGPT's format for overrides.
        let key = key.trim().trim_start_matches("Overriding:").trim_start();
        (key == "device" || key == "--device").then(|| value.contains("cpu"))
    };
    let ordered = run.order.as_ref().and_then(|order| order.device.as_ref()).map(|device| device == "cpu");
    let given = || run.command.iter().rev().find_map(|word| said(word));
    let printed = || run.config.as_ref()?.lines().rev().find_map(said);
    ordered.or_else(given).or_else(printed).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use headroom_protocol::{
        ServerMessage,
        reading::{MissingReason, Reading},
        run::{EarlierParts, Iteration},
    };

    use super::*;
    use crate::state::rig::sample::{T, hello, iteration, run, slow, telemetry};

    fn found(facts: &[Fact], name: Key) -> String {
        let fact = facts.iter().find(|fact| fact.name == name);
        fact.map(|fact| fact.value.replace('\u{a0}', " ")).unwrap_or_default()
    }

    #[test]
    fn a_run_says_how_fast_it_is_and_when_it_is_done() {
        let mut run = run("a");
        run.last = Some(iteration(400, 2.0625));
        let facts = facts(&run, &Settings::default(), None, T + 40_000);
        for (name, expected) in [
            (text::RIG_ITERATION, "400 of 1,000"),
            (text::RIG_LOSS, "2.0625"),
            (text::RIG_TOKENS, "81,920"),
            (text::RIG_MFU, "23.5 %"),
            (text::RIG_TIME_LEFT, "≈ 1 min 0 s"),
            (text::RIG_DURATION, "40 s"),
            (text::RIG_ENERGY, ""),
        ] {
            assert_eq!(found(&facts, name), expected);
        }
        assert_eq!(share_done(&run), Some(0.4));
    }

    #[test]
    fn a_run_that_was_ordered_says_with_what() {
        let order = RunRequest {
            config: "long.py".to_owned(),
            dataset: Some("fox".to_owned()),
            device: Some("cuda:1".to_owned()),
            name: None,
        };
        let facts_of = |order: Option<RunRequest>| {
            let facts = facts(&Run { order, ..run("a") }, &Settings::default(), None, T);
            [text::RIG_CONFIG, text::RIG_DATASET, text::RIG_DEVICE].map(|name| found(&facts, name))
        };
        assert_eq!(facts_of(Some(order)), ["long.py", "fox", "cuda:1"]);
        assert_eq!(facts_of(None), ["", "", ""], "unknown for runs that the agent did not start");
    }

    #[test]
    fn figures_that_have_left_every_scale_have_room_all_the_same() {
        let mut run = run("a");
        run.last = Some(Iteration {
            loss: Some(3.5e22),
            learning_rate: Some(1e30),
            gradient_norm: Some(2.5e-7),
            ..iteration(1, 0.0)
        });
        let facts = facts(&run, &Settings::default(), None, T);
        for (name, expected) in
            [(text::RIG_LOSS, "3.5e22"), (text::RIG_LEARNING_RATE, "1e30"), (text::RIG_GRADIENT_NORM, "2.5e-7")]
        {
            assert_eq!(found(&facts, name), expected);
        }
    }

    #[test]
    fn a_run_past_its_end_has_no_end_to_come() {
        let mut run = run("a");
        run.last = Some(iteration(1732, 2.0));
        let facts = facts(&run, &Settings::default(), None, T);
        let fact = facts.iter().find(|fact| fact.name == text::RIG_ITERATION).expect("it is reported");
        assert_eq!(fact.value, "1,732");
        assert!(fact.note.contains("1,000"), "{}", fact.note);
        assert_eq!(left_ms(&run), None);
    }

    #[test]
    fn printed_mfu_is_of_an_a100_and_absent_on_cpu() {
        let mut run = run("a");
        run.last = Some(Iteration { mfu_percent: None, ..iteration(1, 2.0) });
        let facts_of = |run: &Run| {
            let facts = facts(run, &Settings::default(), None, T);
            [text::RIG_MFU, text::RIG_MFU_OF_A100].map(|name| found(&facts, name))
        };
        assert_eq!(facts_of(&run), ["", "11.0 %"]);
        for (order, command, config) in [
            (Some("cpu"), "python", "device = 'cuda'"),
            (None, "--device=cpu", "device = 'cuda'"),
            (None, "python", "device = 'cuda'\nOverriding: device = cpu\n"),
        ] {
            run.order = order.map(|device| RunRequest { device: Some(device.to_owned()), ..RunRequest::default() });
            (run.command, run.config) = (vec![command.to_owned()], Some(config.to_owned()));
            assert_eq!(facts_of(&run), ["", ""], "{order:?} {command} {config}");
        }
        (run.order, run.command) = (None, vec!["--device=cuda:1".to_owned()]);
        run.config = Some("# device = 'cpu'\nout_dir = 'cpu'\n".to_owned());
        assert_eq!(facts_of(&run), ["", "11.0 %"]);
    }

    #[test]
    fn missing_reading_of_run_is_a_dash_with_reason() {
        let mut rig = Rig::default();
        rig.hear(ServerMessage::Hello(Box::new(hello(1, vec![run("a")], 0))), false);
        rig.hear(ServerMessage::Telemetry(telemetry(1)), false);
        rig.hear(ServerMessage::Slow(slow(&[(0, 4242, None, Some("a"))])), false);
        let facts_of = |rig: &Rig, run: &Run| {
            not_given(rig, run).into_iter().map(|fact| (fact.name, fact.note)).collect::<Vec<_>>()
        };
        let run = rig.runs[0].run.clone();
        assert_eq!(facts_of(&rig, &run), [(text::RIG_PEAK, t(text::RIG_HIDDEN_BY_WINDOWS).to_owned())]);
        rig.gpus[0].sample.as_mut().expect("read").power_watts = Reading::missing(MissingReason::NoPermission);
        let energy = (text::RIG_ENERGY, t(text::RIG_NO_PERMISSION).to_owned());
        assert_eq!(facts_of(&rig, &Run { gpu_memory_peak_bytes: Some(1), ..run.clone() }), [energy]);
        assert_eq!(
            facts_of(&rig, &Run { status: RunStatus::Lost, ..run.clone() }),
            [],
            "the present state says nothing about the past"
        );
        rig.hear(ServerMessage::Slow(slow(&[(0, 4242, Some(1), Some("a"))])), false);
        assert_eq!(facts_of(&rig, &run).len(), 1, "its peak is reported in a moment");
    }

    #[test]
    fn the_built_in_trainer_says_what_it_planned_and_what_it_computes_again() {
        let mut run = run("a");
        let note = |run: &Run| {
            let facts = facts(run, &Settings::default(), None, T);
            facts.into_iter().find(|fact| fact.name == text::RIG_BUILTIN_PLAN).map(|fact| (fact.value, fact.note))
        };
        assert_eq!(note(&run), None, "nanoGPT allocates during the run");
        run.plan.as_mut().expect("it has one").is_builtin = true;
        let (value, keeps) = note(&run).expect("it is reported");
        assert_eq!(value, "7.00 GiB");
        run.plan.as_mut().expect("it has one").recompute =
            Some(headroom_protocol::message::Message::plain("attention"));
        let (_, level) = note(&run).expect("it is reported");
        assert!(level.contains("attention") && keeps.contains("byte") && level.contains("byte"), "{level}, {keeps}");
    }

    #[test]
    fn queued_run_is_not_shown_before_working_run() {
        let mut rig = Rig::default();
        for (id, status) in [("b", RunStatus::Queued), ("a", RunStatus::Running)] {
            let losses = crate::state::rig_charts::losses::Losses::default();
            rig.runs.push(ShownRun { run: Run { status, ..run(id) }, losses, is_whole: true, stopping_ms: None });
        }
        assert_eq!(current(&rig).map(|watched| watched.run.id.as_str()), Some("a"));
        let lasts = |run: &Run| found(&facts(run, &Settings::default(), None, T + 5000), text::RIG_DURATION);
        assert_eq!(lasts(&rig.runs[0].run), "", "it has not begun");
        let earlier = Some(EarlierParts { took_ms: 60_000, energy_joules: None, since_ms: T + 3000 });
        assert_eq!(lasts(&Run { earlier, ..rig.runs[1].run.clone() }), "1 min 2 s");
    }

    #[test]
    fn a_run_that_printed_nothing_has_no_chart_unless_something_may_come() {
        let of = |status: RunStatus, is_whole: bool| {
            let losses = crate::state::rig_charts::losses::Losses::default();
            ShownRun { run: Run { status, ..run("a") }, losses, is_whole, stopping_ms: None }
        };
        assert_eq!(without_losses(&of(RunStatus::exited(1), true)), Some(text::LOSSES_NEVER));
        assert_eq!(without_losses(&of(RunStatus::Queued, true)), Some(text::LOSSES_NONE));
        assert_eq!(without_losses(&of(RunStatus::Running, true)), None, "they may come");
        assert_eq!(without_losses(&of(RunStatus::exited(1), false)), None, "they are on their way");
        let mut evaluated = of(RunStatus::exited(1), true);
        evaluated.losses.take_evaluation(0, Some(4.0), Some(4.0));
        assert_eq!(without_losses(&evaluated), None);
    }

    #[test]
    fn missing_loss_is_reported_not_zero() {
        let mut run = run("a");
        run.last = Some(iteration(1, 0.0));
        run.last.as_mut().expect("a line").loss = None;
        assert_eq!(found(&facts(&run, &Settings::default(), None, T), text::RIG_LOSS), t(text::RIG_NO_LOSS));
    }

    #[test]
    fn a_run_without_a_prediction_says_why() {
        let mut run = run("a");
        assert_eq!(unplanned(&run), None);
        for (figure, printed, planned, words) in [
            (Figure::ParametersMillions, 162.19, 123.587_328, ["162.19", "123.59"]),
            (Figure::TokensPerIteration, 12.0, 491_520.0, ["12", "491,520"]),
        ] {
            run.contradiction = Some(Contradiction { figure, printed, planned });
            let said = unplanned(&run).expect("there is one");
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
    }
}
