//! What a set of sources comes to: each key's value with its origin, and typed access that knows nanoGPT's defaults.

use super::defaults::{self, DEFAULT_VOCAB_SIZE, DefaultValue};
use super::names::{MAX_NAMES, Names};
use super::parser::is_name;
use super::problem::{Problem, Problems, Severity};
use super::value::Value;
use crate::text::{self, Key, Text};

/// Bytes `start..end` of a source's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// First byte after it.
    pub end: usize,
}

/// Where a value was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Position in the list of sources.
    pub source: usize,
    /// Line of the value, from 1.
    pub line: u32,
    /// Column of the value in characters, from 1.
    pub column: u32,
    /// The value's expression in the source's text.
    pub span: Span,
}

/// One key's value.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The last value that was assigned and could be evaluated.
    pub value: Value,
    /// Where.
    pub origin: Origin,
}

/// What a name stands for while a config runs.
pub(super) enum Lookup {
    Known(Value),
    NotEvaluated,
    DependsOnDevice,
    DependsOnData,
    Unknown,
}

/// The outcome of reading: values, and everything there is to say about how they were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Keys of nanoGPT, and `vocab_size`, that a source sets.
    pub values: Names<Setting>,
    /// Other names that a source sets: helpers in a config, or keys of a fork.
    pub unknown: Names<Setting>,
    /// Names whose last assignment could not be evaluated, and where it is. An earlier value may stand in `values`.
    pub unevaluated: Names<Origin>,
    /// Config files that are named and were not read, by name; at most 80 characters of each.
    pub unread: Vec<String>,
    /// A text was read in which nothing is a setting and something is amiss.
    pub(super) found_nothing: bool,
    /// What was noticed, in the order of reading.
    pub problems: Problems,
    /// Whether it was said that there are more names than are kept.
    has_too_many_names: bool,
    /// The sources' names, by [`Origin::source`].
    pub source_names: Vec<String>,
}

/// Counts of steps that `train.py` only compares and takes remainders of, so that a float such as 6e5 works there.
const WORKS_AS_FLOAT: [&str; 5] = ["max_iters", "lr_decay_iters", "warmup_iters", "eval_interval", "log_interval"];

/// What stands for a value that could not be read: no value of Python's.
pub(crate) const UNREADABLE: &str = "unknown";

/// The line of a config that executes another, as Python does it.
#[must_use]
pub fn executed_line(name: &str) -> String {
    format!("exec(open({}).read())\n", Value::Str(name.to_owned()))
}

impl Settings {
    /// The value of `key`: as set, else nanoGPT's default; `None` where that depends on the GPU or the data set.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<Value> {
        let set = self.values.get(key).or_else(|| self.unknown.get(key));
        set.map(|s| s.value.clone()).or_else(|| defaults::find(key)?.default.value())
    }

    /// Whether a source sets `key`.
    #[must_use]
    pub fn is_set(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Keys that decide memory and whose last value could not be read.
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unevaluated.iter().map(|(name, _)| name.as_str()).filter(|name| defaults::decides_memory(name))
    }

    /// Whether every value that decides memory is known: all files were read, and their values too.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unread.is_empty() && !self.found_nothing && self.unreadable().next().is_none()
    }

    /// Whether a text was read in which nothing is a setting and something is amiss.
    #[must_use]
    pub fn found_nothing(&self) -> bool {
        self.found_nothing
    }

    /// Whether no key of nanoGPT is set, not even to a value that could not be read.
    #[must_use]
    pub fn sets_nothing(&self) -> bool {
        self.values.is_empty() && self.unevaluated.iter().all(|(key, _)| defaults::find(key).is_none())
    }

    /// The name of the source that an origin speaks of.
    #[must_use]
    pub fn source_name(&self, origin: &Origin) -> &str {
        self.source_names.get(origin.source).map_or("", String::as_str)
    }

    /// A count. A value of the wrong type or sign is recorded as a problem and the default stands in; `None` where
    /// there is no default.
    pub fn get_u64(&mut self, key: &str) -> Option<u64> {
        let (value, expected) = (self.value(key)?, text::A_WHOLE_NUMBER);
        let whole = match value {
            Value::Int(i) => u64::try_from(i).ok(),
            // Below 2^53 every whole float is exact.
            Value::Float(f) if (0.0..9_007_199_254_740_992.0).contains(&f) && f == f.trunc() => {
                if !WORKS_AS_FLOAT.contains(&key) {
                    self.remark(key, Severity::Warning, text::float_for_int(key, value.to_string()));
                }
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and checked above")]
                Some(f as u64)
            }
            _ => None,
        };
        if whole.is_some() {
            return whole;
        }
        self.wrong_type(key, expected);
        match defaults::find(key)?.default {
            DefaultValue::Int(i) => u64::try_from(i).ok(),
            _ => None,
        }
    }

    /// A real number; Python's ints serve as well. Otherwise as [`Settings::get_u64`].
    pub fn get_f64(&mut self, key: &str) -> Option<f64> {
        match self.value(key)? {
            Value::Float(f) => return Some(f),
            Value::Int(i) => return Some(i as f64),
            _ => self.wrong_type(key, text::A_NUMBER),
        }
        match defaults::find(key)?.default {
            DefaultValue::Float(f) => Some(f),
            _ => None,
        }
    }

    /// A switch, by Python's rule of truth, as `train.py` only ever asks `if x:`. A string is true unless empty, which
    /// is recorded as a warning.
    pub fn get_bool(&mut self, key: &str) -> Option<bool> {
        let value = self.value(key)?;
        if let Value::Str(s) = &value
            && !s.is_empty()
        {
            self.remark(key, Severity::Warning, text::string_is_true(key, value.to_string()));
        }
        if let Some(truth) = value.truthy() {
            return Some(truth);
        }
        self.wrong_type(key, text::A_TRUTH);
        match defaults::find(key)?.default {
            DefaultValue::Bool(b) => Some(b),
            _ => None,
        }
    }

    /// A text. Otherwise as [`Settings::get_u64`].
    pub fn get_str(&mut self, key: &str) -> Option<String> {
        if let Value::Str(s) = self.value(key)? {
            return Some(s);
        }
        self.wrong_type(key, text::A_STRING);
        match defaults::find(key)?.default {
            DefaultValue::Str(s) => Some(s.into()),
            _ => None,
        }
    }

    /// The type of autocast, by the device where no source sets it.
    pub fn dtype(&mut self, supports_bfloat16: bool) -> String {
        let by_device = if supports_bfloat16 { "bfloat16" } else { "float16" };
        self.get_str("dtype").unwrap_or_else(|| by_device.into())
    }

    /// The vocabulary, by nanoGPT's default where no source sets it.
    pub fn vocab_size(&mut self) -> u64 {
        self.get_u64("vocab_size").unwrap_or(DEFAULT_VOCAB_SIZE)
    }

    /// Everything that is set, as a config: a line a key, nanoGPT's own first, in its order. An argument's key that is no
    /// Python name (`--batch-size=4`) is left out, as no config can set it. Files that were not read, and values that decide
    /// memory and could not be read, stay so: the result gives no plan either.
    #[must_use]
    pub fn to_config(&self) -> String {
        let mut config = self.unread.iter().fold(String::new(), |config, name| config + &executed_line(name));
        let known = defaults::KEYS.iter().filter_map(|key| Some((key.name, self.values.get(key.name)?)));
        let unknown = self.unknown.iter().map(|(name, setting)| (name.as_str(), setting));
        for (name, Setting { value, .. }) in known.chain(unknown).filter(|(name, _)| is_name(name)) {
            config.push_str(&format!("{name} = {value}\n"));
        }
        self.unreadable().fold(config, |config, name| config + &format!("{name} = {UNREADABLE}\n"))
    }

    /// Assigns a key, as another override at the end of the command line would.
    pub fn assign(&mut self, key: &str, value: Value) {
        let source = self.source_names.len();
        self.source_names.push(format!("--{key}={value}"));
        let origin = Origin { source, line: 1, column: 1, span: Span { start: 0, end: 0 } };
        self.set(key, Setting { value, origin });
    }

    pub(super) fn set(&mut self, key: &str, setting: Setting) {
        self.unevaluated.remove(key);
        let map = if defaults::find(key).is_some() { &mut self.values } else { &mut self.unknown };
        let origin = setting.origin;
        if !map.insert(key, setting) && !self.has_too_many_names {
            self.has_too_many_names = true;
            let message = text::too_many_names(MAX_NAMES);
            let source = self.source_name(&origin).to_owned();
            let (line, column) = (origin.line, origin.column);
            self.problems.push(Problem { severity: Severity::Warning, source, line, column, message, hint: None });
        }
    }

    pub(super) fn lookup(&self, name: &str) -> Lookup {
        if self.unevaluated.contains_key(name) {
            return Lookup::NotEvaluated;
        }
        if let Some(value) = self.value(name) {
            return Lookup::Known(value);
        }
        match defaults::find(name).map(|key| key.default) {
            Some(DefaultValue::DtypeByDevice) => Lookup::DependsOnDevice,
            Some(DefaultValue::VocabByDataset) => Lookup::DependsOnData,
            _ => Lookup::Unknown,
        }
    }

    fn wrong_type(&mut self, key: &str, expected: Key) {
        let Some(value) = self.value(key) else { return };
        let default = defaults::find(key).and_then(|k| k.default.value());
        let value = value.to_string();
        let decides = defaults::decides_memory(key);
        let said = match (default.map(|default| default.to_string()), self.is_argument(key)) {
            (Some(default), true) => text::has_to_be_default(key, value, expected, default),
            (Some(default), false) if !decides => text::has_to_be_used(key, value, expected, default),
            _ => text::has_to_be(key, value, expected),
        };
        self.remark(key, Severity::Error, said);
        if decides && let Some(setting) = self.values.get(key) {
            let origin = setting.origin;
            self.unevaluated.insert(key, origin);
        }
    }

    /// Whether a key's value is of an argument, and not of a file.
    #[must_use]
    pub fn is_argument(&self, key: &str) -> bool {
        let setting = self.values.get(key).or_else(|| self.unknown.get(key));
        setting.is_some_and(|setting| self.source_name(&setting.origin).starts_with("--"))
    }

    /// Says something about `key` once, where its value was written.
    fn remark(&mut self, key: &str, severity: Severity, message: Text) {
        let origin = self.values.get(key).or_else(|| self.unknown.get(key)).map(|s| s.origin);
        let (source, line, column) = match &origin {
            Some(o) => (self.source_name(o).to_owned(), o.line, o.column),
            None => (key.to_owned(), 0, 0),
        };
        // An argument is its own place.
        let (line, column) = if self.is_argument(key) { (0, 0) } else { (line, column) };
        self.problems.push_once(Problem { severity, source, line, column, message, hint: None });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Source, read};
    use super::*;

    fn file(text: &str) -> Settings {
        read(&[Source::File { name: "c.py".into(), text: text.into() }])
    }

    #[track_caller]
    fn said(settings: &Settings, expected: &[&str]) {
        let said: Vec<String> = settings.problems.as_slice().iter().map(ToString::to_string).collect();
        assert_eq!(said, expected);
    }

    #[test]
    fn unset_keys_have_nanogpts_defaults() {
        let mut s = file("");
        assert_eq!(s.get_u64("gradient_accumulation_steps"), Some(40));
        assert_eq!(s.get_f64("learning_rate"), Some(6e-4));
        assert_eq!(s.get_bool("compile"), Some(true));
        assert_eq!(s.get_str("init_from").as_deref(), Some("scratch"));
        assert_eq!(s.get_u64("vocab_size"), None);
        assert_eq!(s.vocab_size(), 50304);
        assert_eq!((s.dtype(true), s.dtype(false)), ("bfloat16".into(), "float16".into()));
        said(&s, &[]);
    }

    #[test]
    fn an_int_serves_as_a_float() {
        let mut s = file("dropout = 0");
        assert_eq!(s.get_f64("dropout"), Some(0.0));
        said(&s, &[]);
    }

    #[test]
    fn a_whole_float_serves_as_a_count() {
        let mut s = file("max_iters = 6e5\nbatch_size = 12.0");
        assert_eq!(s.get_u64("max_iters"), Some(600_000));
        assert_eq!(s.get_u64("batch_size"), Some(12));
        assert_eq!(s.get_u64("batch_size"), Some(12));
        said(&s, &["c.py:2:14: batch_size is the float 12.0; PyTorch wants an int there"]);
    }

    #[test]
    fn a_wrong_type_is_said_and_the_default_stands_in() {
        let mut s = file("batch_size = 'big'\nn_layer = -1\ndropout = None\nblock_size = 0.5");
        assert_eq!(s.get_u64("batch_size"), Some(12));
        assert_eq!(s.get_u64("n_layer"), Some(12));
        assert_eq!(s.get_f64("dropout"), Some(0.0));
        assert_eq!(s.get_u64("block_size"), Some(1024));
        said(
            &s,
            &[
                "c.py:1:14: batch_size is 'big', but it has to be a whole number, 0 or more",
                "c.py:2:11: n_layer is -1, but it has to be a whole number, 0 or more",
                "c.py:3:11: dropout is None, but it has to be a number",
                "c.py:4:14: block_size is 0.5, but it has to be a whole number, 0 or more",
            ],
        );
    }

    #[test]
    fn an_argument_of_the_wrong_sign_names_the_default() {
        let mut s = read(&[Source::Override { text: "--batch_size=-3".into() }]);
        assert_eq!(s.get_u64("batch_size"), Some(12));
        said(&s, &["--batch_size=-3: batch_size is -3, but it has to be a whole number, 0 or more; the default is 12"]);
    }

    #[test]
    fn what_no_config_can_set_is_in_none() {
        let arguments =
            ["--batch-size=4", "--größe=3", "--n layer=2"].map(|text| Source::Override { text: text.into() });
        // What two of them mean is known, and their runs have no plan.
        let config = "größe = 3\nbatch_size = unknown\nn_layer = unknown\n";
        assert_eq!(read(&arguments).to_config(), config);
    }

    #[test]
    fn switches_follow_pythons_truth() {
        let mut s = file("compile = 0\nbias = 'False'\nwandb_log = None");
        assert_eq!(s.get_bool("compile"), Some(false));
        assert_eq!(s.get_bool("bias"), Some(true));
        assert_eq!(s.get_bool("wandb_log"), Some(false));
        said(&s, &["c.py:2:8: bias is the string 'False', which Python takes for true"]);
    }
}
