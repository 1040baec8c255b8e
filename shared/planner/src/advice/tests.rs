//! Typical user requests, and properties of all advice.

use proptest::prelude::*;

use super::*;
use crate::{
    nanogpt::{Source, Value, read},
    session::resolve,
};
use headroom_text::units::GIB;

/// Returns the advice on a config, with the plan and settings.
fn ask(text: &str, options: &Options) -> (Plan, Advice, Settings) {
    let source = Source::File { name: "config.py".into(), text: text.into() };
    let resolved = resolve(&[source], options);
    let before = plan(resolved.request.clone().expect("a run")).expect("a plan");
    let advice = advise(&resolved.settings, options, &before);
    (before, advice, resolved.settings)
}

/// A 12 GB GPU that also drives a desktop, as in the out-of-memory message.
fn twelve_gb() -> Options {
    Options { other_processes_bytes: GIB * 197 / 100, ..Options::default() }
}

fn value(fix: &Fix, key: &str) -> Option<u64> {
    fix.changes_json().get(key).and_then(serde_json::Value::as_u64)
}

#[test]
fn batch_64_fails_in_the_second_evaluation_batch_and_fits_in_smaller_steps() {
    let (before, advice, _) =
        ask("batch_size = 64\ngradient_accumulation_steps = 1\ndtype = 'bfloat16'\n", &twelve_gb());
    let oom = before.oom.expect("it fails");
    assert_eq!((oom.phase.name(), oom.tensor.as_str(), oom.shape.as_slice()), ("eval", "logits", &[65536, 50304][..]));
    let best = &advice.fixes[0];
    assert_eq!((best.id().as_str(), best.fits, best.effect()), ("micro_batch", true, Effect::None));
    assert_eq!((value(best, "batch_size"), value(best, "gradient_accumulation_steps")), (Some(8), Some(8)));
    assert!(best.step_time_ratio.is_some_and(|ratio| (1.0..1.15).contains(&ratio)), "{best:?}");
    assert_eq!(advice.batch_sizes.largest, Some(11));
}

#[test]
fn batch_16_accumulated_keeps_its_512_sequences() {
    let (_, advice, _) = ask("batch_size = 16\ngradient_accumulation_steps = 32\n", &twelve_gb());
    let best = &advice.fixes[0];
    assert!(best.fits);
    assert_eq!((value(best, "batch_size"), value(best, "gradient_accumulation_steps")), (Some(8), Some(64)));
}

#[test]
fn a_model_of_77_million_in_float16_keeps_its_512_sequences() {
    let text = "n_embd = 576\nn_head = 9\nbatch_size = 16\ngradient_accumulation_steps = 32\ndtype = 'float16'\n";
    let (before, advice, _) = ask(text, &twelve_gb());
    assert_eq!(before.request.gpt.n_parameters(), Some(77_355_072));
    assert!(before.oom.is_some_and(|oom| oom.phase.name().contains("backward")));
    let best = &advice.fixes[0];
    assert!(best.fits && best.effect() == Effect::None);
    assert_eq!((value(best, "batch_size"), value(best, "gradient_accumulation_steps")), (Some(8), Some(64)));
}

#[test]
fn a_run_beyond_any_change_names_the_smallest_gpu() {
    let options = Options { vram_bytes: Some(GIB * 3 / 10), ..Options::default() };
    let (_, advice, _) = ask("", &options);
    assert!(advice.fixes.iter().all(|fix| !fix.fits));
    let gpu = advice.smallest_gpu.expect("a GPU");
    assert!(gpu.total_bytes > 9 * GIB, "{}", gpu.name);
}

#[test]
fn eval_batches_shrink_where_only_evaluation_fails() {
    let text = "eval_only = True\nbatch_size = 64\n";
    let (_, advice, _) = ask(text, &twelve_gb());
    let ids: Vec<String> = advice.fixes.iter().filter(|fix| fix.fits).map(Fix::id).collect();
    assert!(ids.contains(&"eval_batch".to_owned()) && ids.contains(&"micro_batch".to_owned()), "{ids:?}");
}

#[test]
fn a_gpu_without_bfloat16_is_offered_float16() {
    let options = Options { gpu: "T4".into(), ..Options::default() };
    let (_, advice, _) = ask("dtype = 'bfloat16'\nbatch_size = 8\n", &options);
    let best = advice.fixes.iter().find(|fix| fix.fits && fix.kinds.contains(&Kind::Dtype)).expect("it is offered");
    assert_eq!(best.changes_json()["dtype"], "float16");
}

#[test]
fn a_run_that_fits_needs_nothing_and_hears_how_far_it_can_go() {
    let (before, advice, _) = ask("batch_size = 2\n", &Options::default());
    assert!(before.fits && advice.fixes.is_empty());
    assert!(advice.batch_sizes.largest.is_some_and(|largest| largest > 8));
}

/// Whether a batch size fits, and the memory it leaves on the GPU at the upper end of the band, in bytes.
fn left(text: &str, options: &Options, batch_size: u64) -> (bool, i64) {
    let source = Source::File { name: "config.py".into(), text: format!("{text}batch_size = {batch_size}\n") };
    let plan = plan(resolve(&[source], options).request.expect("a run")).expect("a plan");
    let total = i64::try_from(plan.request.machine.device.total_bytes).expect("a GPU");
    (plan.fits, total - i64::try_from(plan.basis.band_bytes[1]).expect("a size"))
}

/// GPT-2 124M on an RTX 4070: 12 is certain, 13 and 15 fit by less than the error of the estimate, 14 fails between
/// them.
#[test]
fn the_largest_batch_size_is_certain_and_the_same_from_any_start() {
    let options = Options::default();
    let sizes = |start: u64| ask(&format!("batch_size = {start}\n"), &options).1.batch_sizes;
    let found = sizes(12);
    assert_eq!((found.largest, found.may_fit.as_slice()), (Some(12), &[13, 15][..]));
    let gap = found.gap.expect("14 fails");
    assert_eq!((gap.fails, gap.fits, gap.left_bytes >> 20), (14, 15, 13));
    assert_eq!(found.may_fit_text(), "13, 15");
    for start in [1, 2, 13, 14, 15, 16, 20, 64, 1000] {
        assert_eq!(sizes(start), found, "from {start}");
    }
    assert!(left("", &options, 12).1 >= 0 && left("", &options, 13).1 < 0);
}

/// The bisection ends below 73, the largest size that is certain; 74 to 77 may fit.
#[test]
fn sizes_that_may_fit_are_searched_from_the_largest() {
    let options = Options { vram_bytes: Some(8 * GIB), ..Options::default() };
    let text = "n_layer = 6\nn_head = 6\nn_embd = 384\nblock_size = 256\ncompile = True\n";
    let found = ask(&format!("{text}batch_size = 1\n"), &options).1.batch_sizes;
    assert_eq!((found.largest, found.may_fit.as_slice()), (Some(73), &[74, 75, 76, 77][..]));
}

/// The bisection ends at 340, far below sizes whose whole band fits.
#[test]
fn the_run_s_own_size_counts_if_its_whole_band_fits() {
    let options = Options { gpu: "H100 PCIe".to_owned(), ..Options::default() };
    let text = "n_layer = 29\nn_head = 6\nn_embd = 768\nblock_size = 128\ncompile = False\n";
    let found = |size: u64| ask(&format!("{text}batch_size = {size}\n"), &options).1.batch_sizes;
    let (fits, low) = left(text, &options, 376);
    assert!(fits && low >= 0);
    let largest = found(376).largest.expect("it fits");
    assert!(largest >= 376, "{largest}");
    assert_eq!(found(1), found(376));
    assert!(left(text, &options, largest).1 >= 0);
}

#[test]
fn neighbours_read_as_a_range() {
    let said = |may_fit: &[u64]| BatchSizes { may_fit: may_fit.to_vec(), ..BatchSizes::default() }.may_fit_text();
    assert_eq!(
        [said(&[]), said(&[3]), said(&[3, 4]), said(&[3, 4, 5, 7, 9, 10, 11])],
        ["", "3", "3, 4", "3-5, 7, 9-11"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// The result does not depend on the start, is certain to fit, and no larger neighbour is.
    #[test]
    fn the_largest_batch_size_holds_its_word(
        start in 1_u64..200,
        model in 0_usize..4,
        compile: bool,
        vram_gib in 2_u64..26,
    ) {
        let options = Options { vram_bytes: Some(vram_gib * GIB), ..Options::default() };
        let models = [(12, 12, 768, 1024), (6, 6, 384, 256), (24, 16, 1024, 512), (29, 6, 768, 128)];
        let (n_layer, n_head, n_embd, block_size) = models[model];
        let text = format!(
            "n_layer = {n_layer}\nn_head = {n_head}\nn_embd = {n_embd}\nblock_size = {block_size}\ncompile = {}\n",
            Value::Bool(compile)
        );
        let found = ask(&format!("{text}batch_size = {start}\n"), &options).1.batch_sizes;
        prop_assert_eq!(&ask(&format!("{text}batch_size = 1\n"), &options).1.batch_sizes, &found);
        let largest = found.largest.unwrap_or(0);
        if largest > 0 {
            prop_assert!(left(&text, &options, largest).1 >= 0, "{largest}");
        }
        let (fits, low) = left(&text, &options, start);
        prop_assert!(!fits || low < 0 || start <= largest, "{start} is certain, beside {found:?}");
        for size in largest + 1..largest + 9 {
            let (fits, low) = left(&text, &options, size);
            prop_assert!(!fits || low < 0, "{size} is certain too, beside {found:?}");
            prop_assert_eq!(fits, found.may_fit.contains(&size), "{} beside {:?}", size, found);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// A fix's arguments reproduce its figures, and fixes that keep the training process the same number of tokens.
    #[test]
    fn a_fix_does_what_it_says(
        batch_size in 1_u64..100,
        steps in 1_u64..50,
        compile: bool,
        vram_gib in 3_u64..24,
        world_size in 1_u64..3,
    ) {
        let options = Options { vram_bytes: Some(vram_gib * GIB), world_size, ..Options::default() };
        let text = format!(
            "batch_size = {batch_size}\ngradient_accumulation_steps = {}\ncompile = {}\n",
            steps * world_size,
            Value::Bool(compile)
        );
        let (before, advice, settings) = ask(&text, &options);
        let tokens = before.request.train.tokens_per_iteration(before.request.gpt.block_size());
        for fix in &advice.fixes {
            let (mut settings, mut options) = (settings.clone(), options.clone());
            for change in &fix.changes {
                change.apply(&mut settings, &mut options);
            }
            let after = plan(resolve_settings(settings, &options).request.expect("a run")).expect("a plan");
            prop_assert_eq!(after.fits, fix.fits, "{}", fix.id());
            prop_assert_eq!(after.headroom_bytes, fix.headroom_bytes);
            if fix.effect() == Effect::None {
                let now = after.request.train.tokens_per_iteration(after.request.gpt.block_size());
                prop_assert_eq!(now, tokens, "{}", fix.id());
            }
        }
        let ranks: Vec<_> = advice.fixes.iter().map(|fix| (!fix.fits, if fix.fits { Some(fix.effect()) } else { None })).collect();
        prop_assert!(ranks.is_sorted(), "{:?}", ranks);
    }

    /// A fix's arguments are equivalent to its changes.
    #[test]
    fn arguments_read_back(batch_size in 20_u64..100) {
        let (_, advice, settings) = ask(&format!("batch_size = {batch_size}\n"), &Options::default());
        for fix in &advice.fixes {
            for change in &fix.changes {
                if let Change::Key(key, value) = change {
                    let again = read(&[Source::Override { text: change.argument() }]);
                    prop_assert_eq!(again.value(key), Some(value.clone()));
                }
            }
        }
        prop_assert!(settings.problems.as_slice().is_empty());
    }
}
