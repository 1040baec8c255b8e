//! Differences add up, a preview changes neither run, and both runs survive in a link.

use super::{
    super::{
        answer::PlannedSession,
        budget::Budget,
        session::Session,
        trainer::{TrainerPage, TrainerSession},
        trainer_form,
    },
    calculator::LARGER,
    *,
};
use headroom_planner::{
    link::{split_compared, with_compared},
    trainers::input::Trainer,
};

/// A run of a text on a GPU.
fn session(text: &str, gpu: &str) -> Session {
    let mut session = Session { text: text.into(), ..Session::default() };
    session.options.gpu = gpu.into();
    session
}

/// A run of another trainer on a GPU.
fn of_trainer(trainer: Trainer, command: &str, gpu: &str) -> TrainerSession {
    let mut session = TrainerSession::default();
    session.trainer = trainer;
    command.clone_into(&mut session.input_mut().command);
    session.options.gpu = gpu.into();
    session
}

fn compared_of<C: Calculator>(pinned: &C::Session, changed: &C::Session) -> ComparisonView {
    ComparisonView::of(&C::compared_of(pinned).into(), &C::compared_of(changed).into(), None)
}

fn compared(pinned: &Session, changed: &Session) -> ComparisonView {
    compared_of::<Budget>(pinned, changed)
}

/// Runs of other trainers: a larger batch, another GPU, and another trainer.
fn trainer_pairs() -> Vec<[TrainerSession; 2]> {
    let d8 = |batch: u64, gpu: &str| {
        of_trainer(Trainer::Nanochat, &format!("--compile=False --depth=8 --device-batch-size={batch}"), gpu)
    };
    let lora = of_trainer(Trainer::Hf, "--bf16 --per_device_train_batch_size=2 --lora_r=16", "RTX 4070");
    vec![[d8(4, "RTX 4070"), d8(32, "RTX 4070")], [d8(4, "RTX 4070"), d8(4, "RTX 3090")], [d8(4, "RTX 4070"), lora]]
}

/// The views of all pairs, with the texts of the changed runs.
fn views() -> Vec<(String, ComparisonView)> {
    let nanogpt = pairs().into_iter().map(|[pinned, changed]| (changed.text.clone(), compared(&pinned, &changed)));
    let trainers = trainer_pairs()
        .into_iter()
        .map(|[pinned, changed]| (changed.input().command.clone(), compared_of::<TrainerPage>(&pinned, &changed)));
    nanogpt.chain(trainers).collect()
}

/// Runs with more memory, another GPU, other phases, and other options.
fn pairs() -> Vec<[Session; 2]> {
    let before = || session("batch_size = 12\n", "RTX 4070");
    let mut patched = session("batch_size = 12\n", "RTX 4070");
    patched.options.activation_checkpointing = true;
    patched.options.other_processes_bytes = 2 << 30;
    vec![
        [before(), session("batch_size = 64\n", "RTX 4070")],
        [before(), session("batch_size = 12\n", "H200")],
        [before(), session("gradient_accumulation_steps = 1\neval_iters = 0\ncompile = False\n", "RTX 4070")],
        [before(), patched],
    ]
}

#[test]
fn differences_add_up_to_the_difference_of_the_total() {
    for (text, view) in views() {
        let (total, rows) = view.categories.split_last().expect("rows");
        for run in [0, 1] {
            let sum: u64 = rows.iter().filter_map(|row| row.bytes[run]).sum();
            assert_eq!(Some(sum), total.bytes[run], "{text}");
        }
        let sum: i64 = rows.iter().filter_map(rows::MemoryRow::difference).sum();
        assert_eq!(Some(sum), total.difference());
        let figures = view.tiles.map(|tile| tile.figures.expect("a plan").used_bytes);
        assert_eq!(total.bytes, figures.map(Some));
        let sizes: Vec<u64> = rows.iter().filter_map(|row| Some(row.difference()?.unsigned_abs())).collect();
        assert!(sizes.is_sorted_by(|one, next| one >= next), "{sizes:?}");
    }
}

#[test]
fn each_run_has_the_figures_of_the_calculator() {
    for [pinned, changed] in pairs() {
        let view = compared(&pinned, &changed);
        for (session, tile) in [&pinned, &changed].into_iter().zip(&view.tiles) {
            let answer = PlannedSession::of(session);
            let plan = answer.plan().expect("a plan");
            let verdict = crate::state::verdict::Verdict::of_answer(&answer).expect("a plan");
            let figures = tile.figures.as_ref().expect("a plan");
            assert_eq!((&tile.verdict, figures.headroom_bytes), (&verdict.headline, plan.headroom_bytes));
        }
    }
}

#[test]
fn headline_has_the_difference_and_the_outcome() {
    let [small, large] = ["batch_size = 4\n", "batch_size = 64\n"].map(|text| session(text, "RTX 4070"));
    let says = |pinned: &Session, changed: &Session| compared(pinned, changed).headline;
    assert!(
        says(&small, &large).starts_with("The changed run needs ")
            && says(&small, &large).ends_with(" more and does not fit")
    );
    assert!(says(&large, &small).ends_with(" GiB less and fits"), "{}", says(&large, &small));
    assert_eq!(says(&small, &small), "Both runs are the same");
    // train.py never reads the name of the directory while it allocates.
    let same = session("batch_size = 4\nlearning_rate = 1e-3\n", "RTX 4070");
    assert_eq!(says(&small, &same), "Both runs need the same memory; the changed run fits");
    assert!(says(&small, &session("n_head = 7\n", "RTX 4070")).starts_with("No plan"));
    assert_eq!(says(&session("n_head = 7\n", "RTX 4070"), &small), "The pinned run has no plan");
}

#[test]
fn settings_that_differ_are_listed_without_names_and_paths() {
    let pinned = session("batch_size = 4\nout_dir = 'mine'\nmy_path = '/a'\n", "RTX 4070");
    let mut changed = session("batch_size = 8\nwandb_run_name = 'x'\ndataset = 'y'\nmine = 3\n", "L4");
    changed.options.activation_checkpointing = true;
    let rows = compared(&pinned, &changed).settings;
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["GPU", "batch_size", "mine", "Activation checkpointing"]);
    assert_eq!(rows[1].values, ["4", "8"]);
    assert_eq!((&rows[2].values, &rows[3].values), (&["not set".into(), "3".into()], &["off".into(), "on".into()]));
}

#[test]
fn iterations_with_other_tokens_are_compared_per_token() {
    let [small, large] = ["batch_size = 4\n", "batch_size = 8\n"].map(|text| session(text, "RTX 4070"));
    assert!(compared(&small, &large).detail.starts_with("Per token: about "), "{}", compared(&small, &large).detail);
    let eager = session("batch_size = 4\ncompile = False\n", "RTX 4070");
    assert!(compared(&small, &eager).detail.starts_with("Iteration: about "));
}

#[test]
fn link_has_both_runs_without_names_and_paths() {
    for [mut pinned, mut changed] in pairs() {
        for session in [&mut pinned, &mut changed] {
            session.text.push_str("out_dir = 'secret'  # mine\n");
        }
        let link = with_compared(changed.fragment(), &pinned.fragment());
        assert!(!link.contains("secret") && !link.contains("mine"), "{link}");
        let (run, other) = split_compared(&link);
        let opened =
            [other.as_deref().expect("two runs"), run].map(|run| Session::open(run, None).expect("a link").session);
        let [pinned_again, changed_again] = &opened;
        assert_eq!(with_compared(changed_again.fragment(), &pinned_again.fragment()), link);
        let [one, again] = [compared(&pinned, &changed), compared(pinned_again, changed_again)];
        assert_eq!((one.headline, one.categories, one.settings), (again.headline, again.categories, again.settings));
    }
}

/// Previews, applies, exchanges and pins a fix of a run that does not fit.
fn check_preview<C: Calculator>(calculator: C, pinned: &C::Session)
where
    C::Session: std::fmt::Debug,
{
    let comparison = Comparison::new(calculator);
    comparison.set_pinned(pinned.clone());
    comparison.change_back();
    let link = || comparison.fragment();
    let changed = || comparison.changed.session().get();
    let (before, view) = (link(), comparison.view());
    assert_eq!((before.clone(), view.get().preview), (C::link_of(pinned), None));
    let fixes = C::fixes_of(pinned).expect("a plan");
    let fix = fixes.fixes.iter().find(|fix| fix.row.fits).expect("a fix");
    comparison.show_preview(fix);
    assert_eq!(view.get().preview, Some(fix.row.settings.replace('\n', ", ")));
    assert!(view.get().headline.contains(" less and fits"), "{}", view.get().headline);
    let previewed = view.get();
    assert_eq!((link(), changed()), (before.clone(), pinned.clone()));
    comparison.preview.set(None);
    assert_eq!(view.get().headline, "Both runs are the same");
    comparison.apply(fix.clone());
    assert_eq!((view.get().headline, view.get().tiles), (previewed.headline, previewed.tiles));
    assert_eq!(comparison.pinned.get(), *pinned);
    // Exchanged, pinned, and changed back.
    let fixed = changed();
    comparison.swap();
    assert_eq!((comparison.pinned.get(), changed()), (fixed, pinned.clone()));
    comparison.pin();
    assert_eq!((comparison.pinned.get(), link()), (pinned.clone(), before));
}

#[test]
fn a_preview_changes_neither_run_and_apply_changes_one() {
    let owner = Owner::new();
    owner.set();
    check_preview(Budget::new(), &session("batch_size = 64\n", "RTX 4070"));
    for [_, large] in trainer_pairs().into_iter().take(1) {
        check_preview(TrainerPage::new(), &large);
    }
    let tuned = of_trainer(Trainer::Hf, "--bf16 --per_device_train_batch_size=64 --lora_r=16", "RTX 4070");
    check_preview(TrainerPage::new(), &tuned);
}

#[test]
fn a_run_that_fits_offers_its_largest_batch() {
    let lora = |batch: u64| {
        let command = format!("--bf16 --gradient_checkpointing --lora_r=16 --per_device_train_batch_size={batch}");
        of_trainer(Trainer::Hf, &command, "RTX 4070")
    };
    let larger = |session: &TrainerSession| {
        let fixes = TrainerPage::fixes_of(session).expect("a plan");
        fixes.find(LARGER).map(|larger| larger.session.clone())
    };
    let key = trainer_form::key(Trainer::Hf, "per_device_train_batch_size").expect("a key");
    let largest = larger(&lora(1)).expect("a larger batch");
    let size: u64 = largest.input().value(key).parse().expect("a number");
    let fit = |session: &TrainerSession| TrainerPage::compared_of(session).plan.expect("a plan").fit();
    assert!(size > 1 && fit(&largest) != Fit::Fails, "{size}");
    assert_eq!(fit(&lora(size + 1)), Fit::Fails, "{size}");
    assert_eq!([larger(&lora(size)), larger(&lora(64))], [None, None]);
}

#[test]
fn settings_of_other_trainers_are_their_options() {
    let names = |[pinned, changed]: &[TrainerSession; 2]| {
        let rows = compared_of::<TrainerPage>(pinned, changed).settings;
        rows.into_iter().map(|row| (row.name, row.values)).collect::<Vec<_>>()
    };
    let pairs = trainer_pairs();
    let row = |name: &str, values: [&str; 2]| (name.to_owned(), values.map(str::to_owned));
    assert_eq!(names(&pairs[0]), [row("device-batch-size", ["4", "32"])]);
    assert_eq!(names(&pairs[1]), [row("GPU", ["RTX 4070", "RTX 3090"])]);
    let other = names(&pairs[2]);
    assert!(other.contains(&row("Trainer", ["nanochat", "Hugging Face"])), "{other:?}");
    assert!(other.contains(&row("Model", ["not set", "Qwen3-0.6B"])), "{other:?}");
    assert!(other.contains(&row("lora_r", ["not set", "16"])), "{other:?}");
}

#[test]
fn chart_aligns_the_phases_and_keeps_both_peaks() {
    for [pinned, changed] in pairs() {
        let overlay = compared(&pinned, &changed).overlay.expect("two plans");
        let width: f64 = overlay.phases.iter().map(|tick| tick.width).sum();
        assert!((width - 1.0).abs() < 1e-9, "{width}");
        // A phase of one run alone leaves a gap in the line of the other.
        let gaps = |path: &str| path.matches('M').count() - 1;
        assert!(gaps(&overlay.pinned) <= 3, "{}", overlay.pinned);
        let is_same_gpu = pinned.options.gpu == changed.options.gpu;
        assert_eq!(overlay.limits.len(), if is_same_gpu { 1 } else { 2 });
        // The larger run reaches its memory in use, and the limit of a much larger GPU is above the chart.
        assert_eq!(overlay.limits.iter().all(|limit| limit.y.is_some()), is_same_gpu);
    }
    let [run, _] = &pairs()[0];
    assert!(compared(run, run).overlay.expect("two plans").absent.is_empty());
    let overlay = compared(run, run).overlay.expect("two plans");
    assert_eq!(overlay.reserved[0], overlay.reserved[1]);
    assert_eq!(overlay.pinned.matches('M').count(), 1, "no gaps");
}

/// A run that fails draws the last micro-step and the one that fails.
#[test]
fn a_run_fills_in_the_micro_steps_that_it_repeats() {
    let gpu = "GPU with 5 GiB";
    let session = |text: &str, vram: u64| {
        let mut session = session(text, gpu);
        session.options.gpu = String::new();
        session.options.vram_bytes = Some(vram);
        session
    };
    let spans = |session: &Session| PlannedSession::of(session).planned.expect("a plan").timeline.spans.len();
    let fits = session("batch_size = 4\n", 24 << 30);
    // The smallest memory with which the run fails in a repeated micro-step.
    let fails =
        (1..60).map(|n| session("batch_size = 4\n", (3 << 30) + (n << 25))).find(|run| spans(run) > spans(&fits));
    let fails = fails.expect("a run that draws one micro-step more");
    for [pinned, changed] in [[&fits, &fails], [&fails, &fits]] {
        let overlay = compared(pinned, changed).overlay.expect("two plans");
        assert!(overlay.absent.is_empty(), "{:?}", overlay.absent);
        assert_eq!([&overlay.pinned, &overlay.changed].map(|path| path.matches('M').count()), [1, 1]);
    }
    // A run of one micro-step has none to repeat. Its area ends there, and the columns are marked.
    let single = session("batch_size = 4\ngradient_accumulation_steps = 1\n", 24 << 30);
    let overlay = compared(&fits, &single).overlay.expect("two plans");
    assert!(!overlay.absent.is_empty());
    assert!(overlay.changed.matches('M').count() > 1, "{}", overlay.changed);
    let column = overlay.absent[0].start;
    let (_, moments) = overlay.moment(column).expect("a moment");
    assert!(moments[0].is_some() && moments[1].is_none(), "{moments:?}");
}

#[test]
fn details_of_a_moment_add_up_and_hold_the_largest_tensors() {
    for (text, view) in views() {
        let overlay = view.overlay.as_ref().expect("two plans");
        for column in (0..overlay.n_columns).step_by(7) {
            let (_, moments) = overlay.moment(column).expect("a moment");
            let moment = view.moment(column).expect("a moment");
            for run in [0, 1] {
                let sum: u64 = moment.categories.iter().filter_map(|row| row.bytes[run]).sum();
                assert_eq!(moment.total.bytes[run].is_some(), moments[run].is_some());
                assert_eq!(moment.total.bytes[run].unwrap_or(0), sum, "{text}, {column}");
            }
            let sizes: Vec<_> = moment.tensors.iter().map(|row| row.bytes.into_iter().flatten().max()).collect();
            assert!((1..=3).contains(&sizes.len()) && sizes.is_sorted_by(|one, next| one >= next), "{sizes:?}");
        }
        assert_eq!(overlay.moment(overlay.n_columns), None);
    }
}
