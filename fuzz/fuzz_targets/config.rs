//! Fuzzes pasted text: it is read, resolved and, if that is fast, planned. Patching a key changes only that key, and
//! the settings survive conversion to a link and back.
#![no_main]

use std::collections::BTreeSet;

use headroom_fuzz::{MAX_PLAIN_BYTES, check_problems, is_quick, plain_values, value, value_like, values};
use headroom_planner::{
    advice::{Advice, advise},
    link::{MAX_LINK_BYTES, decode, encode},
    nanogpt::{Settings, Severity, Source, defaults::KEYS, from_pasted_text, patch, read},
    optimizer_spec::Optimizer,
    plan::plan,
    session::{Options, resolve_settings},
    train_config::{Attention, CrossEntropy},
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value as Json;

/// Maximum number of findings: each has its own place in the code, and none is added in a loop.
const MAX_FINDINGS: usize = 32;

/// Derives options from a hash of the text, so that the corpus stays plain text.
fn options(number: u32) -> Options {
    let bit = |i: u32| number >> i & 1 == 1;
    Options {
        vram_bytes: bit(5).then(|| u64::from(number) << 20),
        expandable_segments: bit(0),
        attention: if bit(1) { Attention::Math } else { Attention::Flash },
        activation_checkpointing: bit(2),
        optimizer: if bit(3) { Optimizer::Adamw8bit } else { Optimizer::AdamwFused },
        cross_entropy: if bit(4) { CrossEntropy::Chunked } else { CrossEntropy::Whole },
        del_eval_logits: bit(6),
        world_size: if bit(7) { 2 } else { 1 },
        ..Options::default()
    }
}

fn file(text: &str) -> Settings {
    read(&[Source::File { name: "config.py".into(), text: text.into() }])
}

/// Returns whether every bracket and string is closed: a two-line statement after the text is then read as one.
fn is_closed(text: &str) -> bool {
    let probed = file(&format!("{text}\nprobe_of_fuzz = (\n1)\n"));
    value(&probed, "probe_of_fuzz").as_deref() == Some("1")
}

fn spans_lie_in_the_text(settings: &Settings, sources: &[Source]) {
    for (name, setting) in settings.values.iter().chain(settings.unknown.iter()) {
        let text = match &sources[setting.origin.source] {
            Source::File { text, .. } | Source::Override { text } | Source::Printed { text } => text.as_str(),
            Source::Named { .. } => "",
        };
        let span = setting.origin.span;
        assert!(text.get(span.start..span.end).is_some(), "{name}: {span:?} is not at character boundaries");
    }
}

/// A simulation takes a thousand times as long as reading a text, so only one in this number of texts is simulated.
const TEXTS_PER_PLAN: u32 = 4;
/// Advice needs dozens of simulations.
const TEXTS_PER_ADVICE: u32 = 32;

fn a_plan_comes_of_it(settings: Settings, options: &Options, number: u32) {
    let resolved = resolve_settings(settings, options);
    check_problems(&resolved.settings);
    assert!(resolved.findings.len() <= MAX_FINDINGS, "{:?}", resolved.findings);
    let refused = resolved.findings.iter().any(|finding| finding.severity == Severity::Error);
    let settings = &resolved.settings;
    let refused = refused || !settings.is_complete() || settings.problems.first_stop().is_some();
    assert_eq!(resolved.request.is_none(), refused, "{:?}", resolved.findings);
    let Some(request) = resolved.request.filter(|request| is_quick(request) && number.is_multiple_of(TEXTS_PER_PLAN))
    else {
        return;
    };
    let Ok(plan) = plan(request) else { return };
    let is_advised = number.is_multiple_of(TEXTS_PER_ADVICE);
    let advice = if is_advised { advise(&resolved.settings, options, &plan) } else { Advice::default() };
    let json = serde_json::to_string(&plan.document(&resolved.config, &advice, headroom_languages::english()))
        .expect("a document");
    let _: Json = serde_json::from_str(&json).expect("the output is JSON");
}

fn a_patch_changes_one_key(text: &str, number: u32) {
    let key = &KEYS[number as usize % KEYS.len()];
    let new = value_like(key.default.value().as_ref(), number);
    let patched = patch(text, &[(key.name, new.clone(), "why")]);
    if !is_closed(text) {
        return;
    }
    let mut expected = values(&file(text));
    expected.insert(key.name.to_owned(), new.to_string());
    assert_eq!(values(&file(&patched)), expected, "{patched:?}");
}

fn a_config_says_it(settings: &Settings) {
    let config = settings.to_config();
    let read = file(&config);
    let unreadable: BTreeSet<&str> = settings.unreadable().collect();
    assert!(unreadable.is_subset(&read.unreadable().collect()), "{unreadable:?} stay unreadable in {config}");
    let mut expected = plain_values(settings);
    // An unreadable key keeps its last readable value, which the config omits. The name of an argument may not be a
    // Python name.
    expected.retain(|name, _| {
        !unreadable.contains(name.as_str()) && value(&file(&format!("{name} = 1\n")), name).is_some()
    });
    assert_eq!(plain_values(&read), expected, "{config}");
}

fn a_link_keeps_it(settings: &Settings, options: &Options) {
    let written = encode(settings, options);
    let link = decode(&written);
    if written.len() > MAX_LINK_BYTES {
        assert!(!link.unknown.is_empty(), "an unread link is named");
        return;
    }
    assert_eq!(link.options, *options, "{written}");
    // A collection may span several lines, and no config evaluates the longest arguments. A link reports them as
    // unknown.
    let mut texts = settings.values.iter().map(|(_, setting)| setting.value.to_python_str());
    if texts.all(|text| text.is_some_and(|text| text.len() <= MAX_PLAIN_BYTES)) {
        assert_eq!(link.unknown, [""; 0], "{written}");
        assert_eq!(encode(&link.settings(), options), written);
    }
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let number = data.iter().fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte))) >> 16;
    let options = options(number);
    let pasted = from_pasted_text("pasted", &text);
    let settings = pasted.read();
    check_problems(&settings);
    spans_lie_in_the_text(&settings, &pasted.sources);
    a_config_says_it(&settings);
    a_link_keeps_it(&settings, &options);
    a_patch_changes_one_key(&text, number);
    a_plan_comes_of_it(settings, &options, number);
});
