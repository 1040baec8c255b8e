//! Fuzzes pickles: any bytes are values or an error with a position, nothing is executed, and there is at most one value
//! per byte.
#![no_main]

use headroom_tokenizer::pickle::{Pickle, Value};
use libfuzzer_sys::fuzz_target;

const DICTS: &[&str] = &["collections OrderedDict"];

/// Checks a value's references. Values may contain themselves, so it does not recurse.
fn check(pickle: &Pickle, value: &Value, n_bytes: usize) {
    match value {
        Value::List(_) => assert!(pickle.items(value).len() <= n_bytes),
        Value::Dict(_) => assert!(pickle.is_dict(value)),
        Value::Call(call) => {
            let is_listed = pickle.called(call).is_some_and(|name| DICTS.contains(&name));
            assert_eq!(pickle.is_dict(value), is_listed);
            let _ = (pickle.value(call.function), pickle.value(call.args));
        }
        Value::Persistent(name) => drop(pickle.value(*name).clone()),
        Value::Text(text) | Value::Global(text) => assert!(text.len() <= 3 * n_bytes),
        Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Opaque => {}
    }
    let pairs = pickle.pairs(value);
    assert!(pairs.len() <= n_bytes);
    for (key, found) in pairs {
        match key {
            Value::Text(name) => assert!(pickle.get(value, name).is_some()),
            Value::Int(number) => assert!(pickle.get_int(value, *number).is_some()),
            _ => {}
        }
        let _ = found;
    }
}

fuzz_target!(|data: &[u8]| {
    let pickle = match Pickle::read(data, DICTS) {
        Ok(pickle) => pickle,
        Err(error) => {
            assert!(error.at <= data.len(), "{error}");
            assert!(error.to_string().len() <= 100, "{error}");
            return;
        }
    };
    assert!(pickle.n_values() <= data.len(), "{} values of {} bytes", pickle.n_values(), data.len());
    for id in 0..pickle.n_values().min(64) {
        check(&pickle, pickle.value(id), data.len());
    }
    check(&pickle, pickle.root(), data.len());
});
