//! Exact sentences for messages with and without their configs.

use proptest::prelude::*;

use super::*;
use crate::{
    memory::{message::TorchVersion, program::Phase},
    oom::Agreement,
    plan::plan,
};
use headroom_text::units::GIB;

/// Message of nanoGPT's 124M model at batch 64 on a 12 GB GPU that also runs a desktop.
const BATCH_64: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity \
    of 11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. Of the \
    allocated memory 6.78 GiB is allocated by PyTorch, and 73.00 MiB is reserved by PyTorch but unallocated.";

/// nanoGPT#88, batch 32 in eager mode without flash attention.
const BATCH_32: &str = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB (GPU 0; 15.78 GiB total \
    capacity; 10.16 GiB already allocated; 4.31 GiB free; 10.20 GiB reserved in total by PyTorch)";

fn ask(text: &str, config: &str) -> Diagnosis {
    let sources = match config {
        "" => vec![],
        _ => vec![Source::File { name: "config.py".into(), text: config.into() }],
    };
    diagnose(text, &sources, &Options::default(), false)
}

#[test]
fn batch_64_is_the_second_evaluation_batch_to_the_digit() {
    let found = ask(BATCH_64, "batch_size = 64\ngradient_accumulation_steps = 1\n");
    assert_eq!(found.explanation.agreement, Some(Agreement::Exact));
    let best = &found.explanation.matches[0];
    assert_eq!((best.tensor.to_string().as_str(), best.phase, best.exact), ("logits", Some(Phase::Eval), true));
    assert_eq!(best.shape, [65536, 50304]);
    assert_eq!(found.options.gpu, "GeForce RTX 4070");
    assert!(found.explanation.text.to_string().contains("to the last digit"), "{}", found.explanation.text);
    assert!(found.advice.fixes[0].fits);
}

#[test]
fn batch_32_without_flash_attention_comes_out_in_the_old_words_too() {
    let options =
        Options { attention: crate::train_config::Attention::Math, gpu: "V100 16GB".into(), ..Options::default() };
    let config = "batch_size = 32\ncompile = False\ndtype = 'float16'\n";
    let sources = [Source::File { name: "config.py".into(), text: config.into() }];
    let found = diagnose(BATCH_32, &sources, &options, true);
    let best = &found.explanation.matches[0];
    assert_eq!(
        (best.shape.as_slice(), best.dtype.name()),
        (&[32768, 50304][..], "float32"),
        "{}",
        found.explanation.text
    );
}

#[test]
fn a_log_explains_itself() {
    let log = format!(
        "Overriding: batch_size = 64\nOverriding: gradient_accumulation_steps = 1\ntokens per iteration will be: 65536\n\
         number of parameters: 123.59M\nTraceback (most recent call last):\n  File \"train.py\", line 264\n{BATCH_64}\n"
    );
    let found = ask(&log, "");
    assert_eq!(found.explanation.agreement, Some(Agreement::Exact), "{}", found.explanation.text);
}

#[test]
fn another_config_is_reported_to_be_another() {
    let found = ask(BATCH_64, "batch_size = 16\n");
    assert_eq!(found.explanation.agreement, Some(Agreement::None));
    assert!(found.explanation.text.to_string().contains("other settings"), "{}", found.explanation.text);
}

#[test]
fn without_a_config_ambiguity_is_shown() {
    let found = ask(BATCH_64, "");
    let shapes: Vec<_> = found.explanation.matches.iter().map(|found| found.shape.clone()).collect();
    assert_eq!(shapes[0], [65536, 50304]);
    assert!(shapes.contains(&vec![32768, 50304]), "float32 logits of half the tokens are as large: {shapes:?}");
    assert!(found.explanation.matches.iter().all(|found| !found.exact && found.phase.is_none()));
    assert!(found.explanation.text.to_string().contains("64 x 1024, or 128 x 512"), "{}", found.explanation.text);
    assert!(found.advice.fixes.is_empty());
}

#[test]
fn other_errors_are_named() {
    for (text, words) in [
        ("RuntimeError: CUDA error: device-side assert triggered", "Not an out-of-memory error"),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            "the GPU is full",
        ),
        ("RuntimeError: CUDA error: out of memory", "outside PyTorch's allocator"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 10605230080 bytes.", "Host memory is full"),
        ("everything went well", "no out-of-memory message"),
    ] {
        let found = ask(text, "");
        assert!(found.explanation.text.to_string().contains(words), "{text}: {}", found.explanation.text);
    }
}

#[test]
fn json_has_the_names_of_the_contract() {
    let json = ask(BATCH_64, "batch_size = 64\n").json(headroom_languages::english());
    let names: Vec<&str> = json.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(
        names.join(" "),
        "allocated_bytes causes differences explanation fixes free_bytes gpu_index kind matches other_processes other_processes_bytes \
         process_bytes rank requested_bytes reserved_bytes schema solutions total_bytes trainer"
    );
    assert_eq!(
        (&json["kind"], &json["trainer"], &json["gpu_index"], &json["rank"]),
        (&Json::from("pytorch"), &Json::from("nanogpt"), &Json::from(0), &Json::Null)
    );
    let match_names: Vec<&str> = json["matches"][0].as_object().expect("a match").keys().map(String::as_str).collect();
    assert_eq!(match_names.join(" "), "dtype exact phase shape tensor");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Diagnosis recovers the exact figures from the message that the calculator prints for a failing run.
    #[test]
    fn our_own_messages_are_explained_exactly(
        batch_size in 8_u64..80, compile: bool, others in 0_u64..3, minor in 1_u32..12,
    ) {
        let config = format!("batch_size = {batch_size}\ncompile = {}\n", if compile { "True" } else { "False" });
        let options = Options {
            other_processes_bytes: others * GIB / 2,
            torch: TorchVersion { major: 2, minor }.to_string(),
            ..Options::default()
        };
        let sources = [Source::File { name: "config.py".into(), text: config.clone() }];
        let failing = plan(resolve(&sources, &options).request.expect("a run")).expect("a plan");
        prop_assume!(failing.oom.is_some());
        let oom = failing.oom.expect("it fails");
        let found = ask(&oom.message, &config);
        let same = found.explanation.matches.iter().any(|found| found.tensor.to_string() == oom.tensor && found.phase == Some(oom.phase));
        prop_assert!(same, "{}\n{}\n{:?}", oom.message, found.explanation.text, found.explanation.matches);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,400}", config in "\\PC{0,60}") {
        let _ = ask(&text, &config).json(headroom_languages::english());
    }
}

fn asked(text: &str) -> Diagnosis {
    diagnose(text, &[], &Options::default(), false)
}

#[test]
fn a_config_is_found_beside_the_message() {
    let config = "batch_size = 64\ngradient_accumulation_steps = 1\n";
    let command = "$ python train.py --batch_size=64 --gradient_accumulation_steps=1\n";
    for text in [
        format!("{config}\n{BATCH_64}"),
        format!("My config:\n```\n{config}```\nand the error:\n{BATCH_64}"),
        format!("I ran\n{command}{BATCH_64}"),
    ] {
        let found = asked(&text);
        assert_eq!(found.explanation.agreement, Some(Agreement::Exact), "{text}\n{}", found.explanation.text);
    }
    // Source lines in a traceback are not a config.
    let traceback = format!("  File \"train.py\", line 3\n    batch_size = 64\n{BATCH_64}");
    assert!(asked(&traceback).resolved.is_none());
}

#[test]
fn the_last_message_is_explained_where_the_first_is_of_another_run() {
    let first = BATCH_64.replace("allocate 6.14 GiB", "allocate 3.07 GiB");
    let config =
        [Source::File { name: "c.py".into(), text: "batch_size = 64\ngradient_accumulation_steps = 1\n".into() }];
    let text = format!("{first}\nagain\n{BATCH_64}");
    let found = diagnose(&text, &config, &Options::default(), false);
    assert!(found.explains_last && found.explanation.agreement == Some(Agreement::Exact), "{}", found.explanation.text);
    let text = format!("{BATCH_64}\nagain\n{first}");
    assert!(!diagnose(&text, &config, &Options::default(), false).explains_last);
}

#[test]
fn figures_are_explained() {
    let message = |free: &str, process: &str, unallocated: &str| {
        BATCH_64
            .replace("2.68 GiB is free", &format!("{free} is free"))
            .replace("7.04 GiB memory in use", &format!("{process} memory in use"))
            .replace("73.00 MiB is reserved", &format!("{unallocated} is reserved"))
    };
    for (text, words) in [
        (message("2.68 GiB", "7.04 GiB", "6.50 GiB"), "expandable_segments:True"),
        (message("7.00 GiB", "4.00 GiB", "73.00 MiB"), "more than the 6.14 GiB requested"),
        (message("0 bytes", "17179869184.00 GiB", "73.00 MiB"), "WSL"),
    ] {
        let said = asked(&text).explanation.text.to_string();
        assert!(said.contains(words), "{words} is not in: {said}");
    }
    let plain = asked(BATCH_64).explanation.text.to_string();
    assert!(!plain.contains("expandable") && !plain.contains("WSL") && !plain.contains("are free"), "{plain}");
}

/// Message for a GPU of 11.69 GiB with the given memory split.
fn figures(asked: &str, free: &str, process: &str, allocated: &str, unallocated: &str) -> String {
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 11.69 GiB of \
         which {free} is free. Process 1234 has 10.00 GiB memory in use. Including non-PyTorch memory, this process has \
         {process} memory in use. Of the allocated memory {allocated} is allocated by PyTorch, and {unallocated} is \
         reserved by PyTorch but unallocated."
    )
}

#[test]
fn segment_of_every_small_tensor_names_none() {
    for (size, range) in [("20.00 MiB", "any tensor of 1 to 10 MiB"), ("2.00 MiB", "tensors of up to 1 MiB")] {
        let message = figures(size, "1.00 MiB", "1.67 GiB", "1.00 GiB", "52.00 MiB");
        for config in ["", "batch_size = 12\n"] {
            let found = ask(&message, config);
            let said = found.explanation.text.to_string();
            assert!(said.contains(&format!("PyTorch reserves {size} for {range}")), "{config}: {said}");
            assert!(!said.contains("c_fc"), "{said}");
        }
        // A tensor of 20 MiB itself is one of the candidates, and none below 10 MiB.
        let bytes = |found: &Diagnosis| -> Vec<u64> {
            let matches = found.explanation.matches.iter();
            matches.map(|m| m.shape.iter().product::<u64>() * m.dtype.bytes()).collect()
        };
        assert!(bytes(&ask(&message, "")).iter().all(|bytes| *bytes >= 18 << 20), "{size}");
    }
}

#[test]
fn causes_are_ranked() {
    let without = |text: String| text.replace("Process 1234 has 10.00 GiB memory in use. ", "");
    for (text, causes, first, not) in [
        // Another process has priority over every other cause, and is named.
        (
            figures("512.00 MiB", "20.00 MiB", "1.67 GiB", "1.00 GiB", "52.00 MiB"),
            "other_process",
            "Process 1234 holds 10.00 GiB of the GPU's 11.69 GiB. Otherwise the requested 512.00 MiB",
            "fragmentation",
        ),
        // 50 MiB of 11.69 GiB does not count as fragmentation: the GPU is full.
        (
            without(figures("20.00 MiB", "10.00 MiB", "11.68 GiB", "11.20 GiB", "50.00 MiB")),
            "gpu_full",
            "The GPU is full: tensors take 11.20 GiB of its 11.69 GiB.",
            "expandable_segments",
        ),
        (
            without(figures("2.00 GiB", "20.00 MiB", "11.67 GiB", "6.00 GiB", "5.20 GiB")),
            "fragmentation",
            "would avoid this failure, but not necessarily later ones",
            "is full",
        ),
        // Nor does a notable share that is too small for the request.
        (
            without(figures("2.00 GiB", "20.00 MiB", "11.67 GiB", "9.60 GiB", "1.60 GiB")),
            "gpu_full",
            "The GPU is full",
            "expandable_segments",
        ),
        // Most of the GPU is free for tensors, and the request is larger still.
        (
            without(figures("6.00 GiB", "4.00 GiB", "7.69 GiB", "6.00 GiB", "52.00 MiB")),
            "gpu_full",
            "6.00 GiB",
            "The GPU is full",
        ),
    ] {
        let found = asked(&text);
        let names: Vec<&str> = found.explanation.causes.iter().map(|cause| cause.name()).collect();
        let said = found.explanation.text.to_string();
        assert_eq!(names.join(" "), causes, "{text}");
        assert!(said.contains(first) && !said.contains(not), "{said}");
        assert_eq!(found.json(headroom_languages::english())["causes"][0], names[0]);
    }
    let headline = asked(&figures("512.00 MiB", "20.00 MiB", "1.67 GiB", "1.00 GiB", "52.00 MiB")).explanation.text;
    assert!(headline.to_string().starts_with("Process 1234 holds 10.00 GiB"), "{headline}");
}

/// GPT-2 124M with 14 sequences fails on an RTX 4070 by fragmentation alone: 15 fit.
#[test]
fn the_simulation_tells_fragmentation_where_the_figures_do_not() {
    let config = "batch_size = 14\n";
    let sources = [Source::File { name: "config.py".into(), text: config.into() }];
    let failing = plan(resolve(&sources, &Options::default()).request.expect("a run")).expect("a plan");
    let found = ask(&failing.oom.expect("it fails").message, config);
    assert_eq!(found.explanation.agreement, Some(Agreement::Exact));
    let said = found.explanation.text.to_string();
    assert!(found.explanation.causes.iter().any(|cause| cause.name() == "fragmentation"), "{said}");
    assert!(said.contains("expandable_segments:True"), "{said}");
}

#[test]
fn a_run_that_is_not_the_message_s_gets_its_fixes_with_a_word_on_that() {
    let found = ask(BATCH_64, "batch_size = 32\n");
    assert_eq!(found.explanation.agreement, Some(Agreement::None));
    assert!(found.advises_another_run() && found.advice.fixes.iter().any(|fix| fix.fits));
    assert!(!ask(BATCH_64, "batch_size = 64\n").advises_another_run());
    assert!(!ask(BATCH_64, "batch_size = 2\n").advises_another_run(), "it fits");
}
