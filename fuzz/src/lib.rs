//! What the targets share: how long a simulated run may take, and how values are compared.

use headroom_planner::{
    nanogpt::{MAX_PROBLEMS, Settings, Value},
    plan::Request,
};
use std::collections::BTreeMap;

/// Layers of a run that a target still simulates: nothing is different in the ones behind, and they take their time.
const MAX_QUICK_LAYERS: u64 = 3;

/// Whether planning the run, and what to change about it, takes milliseconds.
#[must_use]
pub fn is_quick(request: &Request) -> bool {
    request.gpt.n_layer() <= MAX_QUICK_LAYERS
}

/// Every name that is set with its value as Python writes it, which also tells NaN from NaN.
#[must_use]
pub fn values(settings: &Settings) -> BTreeMap<String, String> {
    let all = settings.values.iter().chain(settings.unknown.iter());
    all.map(|(name, setting)| (name.clone(), setting.value.to_string())).collect()
}

/// The longest string that a config's reader evaluates; an argument's text may be longer.
pub const MAX_PLAIN_BYTES: usize = 1024;

/// The same without collections, which are not looked into, and without the longest strings.
#[must_use]
pub fn plain_values(settings: &Settings) -> BTreeMap<String, String> {
    let all = settings.values.iter().chain(settings.unknown.iter());
    let plain = all.filter(|(_, setting)| match &setting.value {
        Value::Str(text) => text.len() <= MAX_PLAIN_BYTES,
        value => !matches!(value, Value::Opaque(_)),
    });
    plain.map(|(name, setting)| (name.clone(), setting.value.to_string())).collect()
}

/// The value of one name as [`values`] has it.
#[must_use]
pub fn value(settings: &Settings, name: &str) -> Option<String> {
    let set = settings.values.get(name).or_else(|| settings.unknown.get(name));
    set.map(|setting| setting.value.to_string())
}

/// # Panics
/// There are more problems than are ever kept, or one of them says nothing.
pub fn check_problems(settings: &Settings) {
    let problems = settings.problems.as_slice();
    assert!(problems.len() <= MAX_PROBLEMS, "{} problems", problems.len());
    assert!(settings.problems.omitted() == 0 || problems.len() == MAX_PROBLEMS, "problems omitted without need");
    for problem in problems {
        assert_eq!(problem.line == 0, problem.column == 0, "half a place: {problem:?}");
        assert!(!problem.to_string().is_empty());
    }
}

/// A value of the type that a key has.
#[must_use]
pub fn value_like(default: Option<&Value>, number: u32) -> Value {
    match default {
        Some(Value::Bool(_)) => Value::Bool(number.is_multiple_of(2)),
        Some(Value::Float(_)) => Value::Float(f64::from(number) / 7.0),
        Some(Value::Str(_)) => Value::Str(format!("it's {number}\n\"\"\"")),
        _ => Value::Int(i64::from(number)),
    }
}
