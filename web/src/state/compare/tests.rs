//! Differences add up, a preview changes neither run, and both runs survive in a link.

use super::{
    moment::ComparedMoment,
    view::{ComparedRun, ComparisonView},
    *,
};
use headroom_planner::{
    link::{split_compared, with_compared},
    nanogpt::Value,
};

/// A run of a text on a GPU.
fn session(text: &str, gpu: &str) -> Session {
    let mut session = Session { text: text.into(), ..Session::default() };
    session.options.gpu = gpu.into();
    session
}

fn compared(pinned: &Session, changed: &Session) -> ComparisonView {
    let answers = [pinned, changed].map(PlannedSession::of);
    let run = |session, answer| ComparedRun { session, answer, no_plan: None };
    ComparisonView::of(&run(pinned, &answers[0]), &run(changed, &answers[1]), None)
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
    for [pinned, changed] in pairs() {
        let view = compared(&pinned, &changed);
        let (total, rows) = view.categories.split_last().expect("rows");
        for run in [0, 1] {
            let sum: u64 = rows.iter().filter_map(|row| row.bytes[run]).sum();
            assert_eq!(Some(sum), total.bytes[run], "{}", changed.text);
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
            let verdict = super::super::verdict::Verdict::of_answer(&answer).expect("a plan");
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

#[test]
fn a_preview_changes_neither_run_and_apply_changes_one() {
    let owner = Owner::new();
    owner.set();
    let comparison = Comparison::new();
    let pinned = session("batch_size = 64\n", "RTX 4070");
    comparison.set_pinned(pinned.clone());
    comparison.change_back();
    let link = || comparison.fragment();
    let (before, view) = (link(), comparison.view());
    assert_eq!((before.clone(), view.get().preview), (pinned.fragment(), None));
    let fix = [Change::Key("batch_size", Value::Int(8))];
    comparison.show_preview("batch_size = 8", &fix);
    assert_eq!(view.get().preview.as_deref(), Some("batch_size = 8"));
    assert!(view.get().headline.ends_with(" less and fits"), "{}", view.get().headline);
    let previewed = view.get();
    assert_eq!((link(), comparison.changed.session.get()), (before.clone(), pinned.clone()));
    comparison.preview.set(None);
    assert_eq!(view.get().headline, "Both runs are the same");
    comparison.apply(&fix);
    assert_eq!((view.get().headline, view.get().tiles), (previewed.headline, previewed.tiles));
    assert_eq!(comparison.pinned.get(), pinned);
    // Exchanged, pinned, and changed back.
    let changed = comparison.changed.session.get();
    comparison.swap();
    assert_eq!((comparison.pinned.get(), comparison.changed.session.get()), (changed.clone(), pinned.clone()));
    comparison.pin();
    assert_eq!((comparison.pinned.get(), link()), (pinned.clone(), before));
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
    for [pinned, changed] in pairs() {
        let answers = [&pinned, &changed].map(PlannedSession::of);
        let plans = answers.each_ref().map(|answer| answer.plan().expect("a plan"));
        let overlay = compared(&pinned, &changed).overlay.expect("two plans");
        for column in (0..overlay.n_columns).step_by(7) {
            let (phase, moments) = overlay.moment(column).expect("a moment");
            let moment = ComparedMoment::of(phase, plans, moments);
            for run in [0, 1] {
                let sum: u64 = moment.categories.iter().filter_map(|row| row.bytes[run]).sum();
                assert_eq!(moment.total.bytes[run].is_some(), moments[run].is_some());
                assert_eq!(moment.total.bytes[run].unwrap_or(0), sum, "{}, {column}", changed.text);
            }
            let sizes: Vec<_> = moment.tensors.iter().map(|row| row.bytes.into_iter().flatten().max()).collect();
            assert!((1..=3).contains(&sizes.len()) && sizes.is_sorted_by(|one, next| one >= next), "{sizes:?}");
        }
        assert_eq!(overlay.moment(overlay.n_columns), None);
    }
}
