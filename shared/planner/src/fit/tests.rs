//! Tests of the answer against plans of the same runs.

use super::{FitAnswer, Limit, NanogptRun, ScalableRun, TrainerRun, batch_sizes, common_gpus, fit};
use crate::{
    advice::{self, Knob, largest_of},
    hardware::find,
    nanogpt::{Settings, Source, read},
    plan::{Fit, plan},
    session::{Options, resolve_settings},
    trainers::{Run, nanochat},
};

fn settings(arguments: &[&str]) -> Settings {
    let sources = arguments.iter().map(|text| Source::Override { text: (*text).to_owned() });
    read(&sources.collect::<Vec<_>>())
}

fn nanochat(words: &str) -> Run {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    Run::Nanochat(nanochat::Run::read(&words).expect("a run"))
}

fn limit<'a>(answer: &'a FitAnswer, key: &str) -> &'a Limit {
    answer.limits.iter().find(|limit| limit.knob.key == key).expect("a knob of the run")
}

#[test]
fn the_largest_of_a_list_is_found_with_few_tests() {
    for (limit, expected) in [(0, None), (1, Some(1)), (2, Some(1)), (3, Some(3)), (700, Some(699)), (5000, Some(999))]
    {
        let tried = std::cell::Cell::new(0);
        let values: Vec<u64> = (0..500).map(|n| 2 * n + 1).collect();
        let passes = |value| {
            tried.set(tried.get() + 1);
            value <= limit
        };
        assert_eq!(largest_of(&values, passes), expected, "{limit}");
        assert!(tried.get() <= 20, "{} tests for {limit}", tried.get());
    }
    assert_eq!(largest_of(&[], |_| true), None);
}

#[test]
fn a_value_beside_the_steps_is_tried_too() {
    let knob = Knob { key: "block_size", value: 100, step: 64, max: 256 };
    assert_eq!(knob.values(), [64, 100, 128, 192, 256]);
    assert_eq!(Knob { value: 128, ..knob }.values(), [64, 128, 192, 256]);
}

#[test]
fn batch_sizes_end_beyond_the_largest_that_fits() {
    let all: Vec<u64> = (1..=4096).collect();
    assert_eq!(batch_sizes(&all, 5, 3), [1, 2, 3, 4, 8]);
    assert_eq!(batch_sizes(&all, 0, 12), [1, 12]);
    assert_eq!(batch_sizes(&all, 300, 64), [16, 32, 64, 128, 256, 512]);
    // Only these divide the tokens of a step.
    assert_eq!(batch_sizes(&[1, 3, 5, 15], 4, 3), [1, 3]);
}

#[test]
fn the_answer_agrees_with_the_plans_of_nanogpt() {
    let (settings, options) = (settings(&["--batch_size=6"]), Options::default());
    let answer = fit(NanogptRun::new(&settings, &options), &common_gpus()).expect("an answer");
    let on = |settings: &Settings, options: &Options| {
        plan(resolve_settings(settings.clone(), options).request.expect("a request")).expect("a plan")
    };
    let before = on(&settings, &options);
    let sizes = advice::batch_sizes(&settings, &options, &before);
    assert_eq!(limit(&answer, "batch_size").largest, sizes.largest);
    let layers = limit(&answer, "n_layer").largest.expect("a model fits");
    let with_layers = |n: u64| NanogptRun::new(&settings, &options).with("n_layer", n).expect("a plan").fit;
    assert_eq!((with_layers(layers) == Fit::Fits, with_layers(layers + 1) == Fit::Fits), (true, false));
    let column = answer.batch_sizes.iter().position(|size| *size == 6).expect("the given size");
    for row in &answer.gpus {
        let plan = on(&settings, &options.with_device(find(&row.device.name).expect("a GPU")));
        let room = row.figures.as_ref().expect("figures").rooms[column].expect("the given size is planned");
        assert_eq!((room.fit, room.headroom_bytes), (plan.fit(), plan.headroom_bytes), "{}", row.device.name);
    }
    let smallest = answer.smallest.as_ref().expect("a GPU");
    let fits = |row: &&super::GpuRow| {
        row.figures.as_ref().is_ok_and(|figures| figures.rooms[column].is_some_and(|room| room.fit == Fit::Fits))
    };
    assert_eq!(smallest.device.name, answer.gpus.iter().find(fits).expect("a row").device.name);
}

#[test]
fn the_size_of_a_pretrained_model_is_no_knob() {
    let (settings, options) = (settings(&["--init_from=gpt2", "--batch_size=1"]), Options::default());
    let keys: Vec<&str> = NanogptRun::new(&settings, &options).knobs().iter().map(|knob| knob.key).collect();
    assert_eq!(keys, ["batch_size", "block_size"]);
}

#[test]
fn nanochat_is_offered_only_sizes_that_the_script_accepts() {
    let run = nanochat("--compile=False --depth=4 --max-seq-len=512 --device-batch-size=3 --total-batch-size=15360");
    let options = Options { vram_bytes: Some(6 << 30), gpu: String::new(), ..Options::default() };
    let t4 = find("Tesla T4").expect("a GPU");
    let answer = fit(TrainerRun::new(&run, &options), &[t4]).expect("an answer");
    // 15360 tokens are 30 sequences of 512.
    let batch = limit(&answer, "device-batch-size");
    assert!(batch.may_fit.or(batch.largest).is_some_and(|size| 30_u64.is_multiple_of(size)), "{batch:?}");
    assert_eq!(answer.batch_sizes.iter().filter(|size| !30_u64.is_multiple_of(**size)).count(), 0);
    let refused = answer.gpus.iter().find(|row| row.device.name == "Tesla T4").expect("the row");
    assert!(refused.figures.as_ref().is_err_and(|cause| cause.contains("compute capability 8.0")));
}

#[test]
fn a_run_beyond_the_table_gets_the_smallest_known_gpu() {
    let run = nanochat("--compile=False --depth=20 --device-batch-size=2");
    let gpus = [find("RTX 4070").expect("a GPU"), find("T4").expect("a GPU")];
    let answer = fit(TrainerRun::new(&run, &Options::default()), &gpus).expect("an answer");
    let smallest = answer.smallest.as_ref().expect("a GPU");
    assert!(!smallest.is_listed && smallest.room.fit == Fit::Fits, "{smallest:?}");
    assert!(smallest.device.total_bytes > 16 << 30, "{smallest:?}");
    assert_eq!(limit(&answer, "device-batch-size").largest, None);
}
