//! Result of reading sources: each key's value with its origin, and typed access with nanoGPT's defaults.

use super::defaults::{self, DEFAULT_VOCAB_SIZE, DefaultValue};
use super::lexer::is_name;
use super::names::{MAX_NAMES, Names};
use super::problem::{Problem, Problems, Severity};
use super::value::Value;
use headroom_text::{self as text, Key, Text};

/// Byte range `start..end` in a source's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset of the first byte after the range.
    pub end: usize,
}

/// Position at which a value was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Index in the list of sources.
    pub source: usize,
    /// Line of the value, from 1.
    pub line: u32,
    /// Column of the value in characters, from 1.
    pub column: u32,
    /// Range of the value's expression in the source's text.
    pub span: Span,
}

/// Value of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The last value that was assigned and could be evaluated.
    pub value: Value,
    /// Origin of the value.
    pub origin: Origin,
}

/// A value that could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnevaluatedValue {
    /// Origin of the value.
    pub origin: Origin,
    /// The expression, if it is short and means the same in any config; else empty.
    pub text: String,
}

/// A config file that was named and not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadFile {
    /// Name of the file, at most 80 characters.
    pub name: String,
    /// The statement that executes the file; empty if an argument names it.
    pub statement: String,
    /// Whether the config that executes the file sets keys before, which the file may set again.
    pub follows_settings: bool,
}

/// Meaning of a name while a config runs.
pub(super) enum Lookup {
    Known(Value),
    NotEvaluated,
    DependsOnDevice,
    DependsOnData,
    Unknown,
}

/// Result of reading: values and problems.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// nanoGPT keys, and `vocab_size`, that a source sets.
    pub values: Names<Setting>,
    /// Other names that a source sets: helper variables of a config, or keys of a fork.
    pub unknown: Names<Setting>,
    /// Names whose last assignment could not be evaluated. `values` may contain an earlier value.
    pub unevaluated: Names<UnevaluatedValue>,
    /// Config files that were not read.
    pub unread: Vec<UnreadFile>,
    /// Whether a text was read that contains problems but no setting.
    pub(super) found_nothing: bool,
    /// The `raise` statement at which Python stops, if a config has one in the form of [`Settings::stop_statement`].
    pub(super) raised: Option<String>,
    /// Problems, in the order of reading.
    pub problems: Problems,
    /// Number of parameters that a log prints, in millions.
    pub parameters: Option<String>,
    /// Whether the problem "too many names" has been recorded.
    has_too_many_names: bool,
    /// Names of the sources, indexed by [`Origin::source`].
    pub source_names: Vec<String>,
}

/// Step counts that `train.py` uses only in comparisons and remainders, so that a float such as 6e5 works.
const WORKS_AS_FLOAT: [&str; 5] = ["max_iters", "lr_decay_iters", "warmup_iters", "eval_interval", "log_interval"];

/// Placeholder for a value that could not be read and whose expression is unknown. It is not a Python value.
pub(crate) const UNREADABLE: &str = "unknown";

/// Maximum length in bytes of an expression kept for a value that could not be read.
const MAX_UNREADABLE_BYTES: usize = 120;

/// Returns the Python statement with which a config executes another one.
#[must_use]
pub fn executed_line(name: &str) -> String {
    format!("exec(open({}).read())\n", Value::Str(name.to_owned()))
}

impl Settings {
    /// Returns the value of `key`, or else nanoGPT's default. Returns `None` if the default depends on the GPU or the
    /// data set.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<Value> {
        let set = self.values.get(key).or_else(|| self.unknown.get(key));
        set.map(|s| s.value.clone()).or_else(|| defaults::find(key)?.default.value())
    }

    /// Returns whether a source sets `key`.
    #[must_use]
    pub fn is_set(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Iterates over the keys that determine memory and whose last value could not be read.
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unevaluated.iter().map(|(name, _)| name.as_str()).filter(|name| defaults::decides_memory(name))
    }

    /// Returns whether the last value of a key could not be read.
    pub(crate) fn is_unevaluated(&self, key: &str) -> bool {
        self.unevaluated.contains_key(key)
    }

    /// Returns the expression of a key that could not be read, for use in a config, a link or a command. `None` if it is
    /// unknown or could have another meaning there.
    #[must_use]
    pub fn unreadable_text(&self, key: &str) -> Option<&str> {
        let text = self.unevaluated.get(key).map_or("", |unevaluated| unevaluated.text.as_str());
        let is_context_free =
            text.split(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && c != '_').all(|word| {
                defaults::find(word).is_none() && !self.values.contains_key(word) && !self.unknown.contains_key(word)
            });
        (is_context_free && !text.is_empty()).then_some(text)
    }

    /// Records that the last value of `key` could not be read. `text` is its expression, or empty if unknown.
    pub(super) fn set_unevaluated(&mut self, key: &str, origin: Origin, text: &str) {
        let is_kept = text.len() <= MAX_UNREADABLE_BYTES && !text.contains(char::is_control);
        let text = if is_kept { text.trim().to_owned() } else { String::new() };
        self.unevaluated.insert(key, UnevaluatedValue { origin, text });
    }

    /// Returns whether every value that determines memory is known, including those of named files.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unread.is_empty() && !self.found_nothing && self.unreadable().next().is_none()
    }

    /// Returns a Python statement that stops where these settings stop nanoGPT, as one line. Returns `None` if they
    /// have no error, or one that a config without this statement has too.
    pub(crate) fn stop_statement(&self) -> Option<String> {
        if !self.is_complete() {
            return None;
        }
        let first = self.problems.first_stop()?;
        // Only the place, because a link is read in any language.
        let stop = || {
            let place = if first.line > 0 { format!("{}:{}", first.source, first.line) } else { first.source.clone() };
            format!("raise ValueError({})", Value::Str(format!("error at {place}")))
        };
        Some(self.raised.clone().unwrap_or_else(stop))
    }

    /// Returns whether a text was read that contains problems but no setting.
    #[must_use]
    pub fn found_nothing(&self) -> bool {
        self.found_nothing
    }

    /// Returns whether no nanoGPT key is set and no statement raises. A key that determines memory counts as set if its
    /// value could not be read.
    #[must_use]
    pub fn sets_nothing(&self) -> bool {
        self.raised.is_none() && self.values.is_empty() && self.unreadable().next().is_none()
    }

    /// Returns the name of the source of an origin.
    #[must_use]
    pub fn source_name(&self, origin: &Origin) -> &str {
        self.source_names.get(origin.source).map_or("", String::as_str)
    }

    /// Returns a count. A value with the wrong type or sign is recorded as a problem and replaced by the default.
    /// Returns `None` if there is no default.
    pub fn get_u64(&mut self, key: &str) -> Option<u64> {
        let value = self.value(key)?;
        let whole = match value {
            Value::Int(i) => u64::try_from(i).ok(),
            // Whole floats below 2^53 are exact.
            Value::Float(f) if (0.0..9_007_199_254_740_992.0).contains(&f) && f == f.trunc() => {
                if !WORKS_AS_FLOAT.contains(&key) {
                    self.remark(key, Severity::Error, text::float_for_int(key, value.to_string()));
                }
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and checked above")]
                Some(f as u64)
            }
            _ => None,
        };
        if whole.is_some() {
            return whole;
        }
        let (min, max) = defaults::range(key);
        match value {
            // Like a value above the range, it stays the value of the key.
            Value::Int(negative) => {
                self.remark(key, Severity::Error, text::out_of_range(key, negative.to_string(), min, max));
            }
            _ => self.wrong_type(key, if min == 0 { text::A_WHOLE_NUMBER } else { text::A_WHOLE_NUMBER_FROM_1 }),
        }
        match defaults::find(key)?.default {
            DefaultValue::Int(i) => u64::try_from(i).ok(),
            _ => None,
        }
    }

    /// Returns a real number; a Python int is converted. Otherwise like [`Settings::get_u64`].
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

    /// Returns a boolean by Python's truth rule, because `train.py` only uses `if x:`. A non-empty string is true,
    /// which is recorded as a warning.
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

    /// Returns a string. Otherwise like [`Settings::get_u64`].
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

    /// Returns the data type of autocast; the default depends on the device.
    pub fn dtype(&mut self, supports_bfloat16: bool) -> String {
        let by_device = if supports_bfloat16 { "bfloat16" } else { "float16" };
        self.get_str("dtype").unwrap_or_else(|| by_device.into())
    }

    /// Returns the vocabulary size, with nanoGPT's default.
    pub fn vocab_size(&mut self) -> u64 {
        self.get_u64("vocab_size").unwrap_or(DEFAULT_VOCAB_SIZE)
    }

    /// Returns everything that is set as a config, one line per key, nanoGPT's keys first and in its order.
    ///
    /// An argument's key that is not a Python name (`--batch-size=4`) is omitted, because no config can set it. Unread
    /// files, and unreadable values that determine memory, stay unread: the result cannot be planned either. Neither can
    /// it after an error, which a `raise` statement repeats.
    #[must_use]
    pub fn to_config(&self) -> String {
        let mut config = self.unread.iter().fold(String::new(), |config, file| config + &executed_line(&file.name));
        let known = defaults::KEYS.iter().filter_map(|key| Some((key.name, self.values.get(key.name)?)));
        let unknown = self.unknown.iter().map(|(name, setting)| (name.as_str(), setting));
        let is_unreadable = |name: &str| self.unreadable().any(|unreadable| unreadable == name);
        let readable = known.chain(unknown).filter(|(name, _)| is_name(name) && !is_unreadable(name));
        config.extend(self.stop_statement().map(|stop| stop + "\n"));
        for (name, Setting { value, .. }) in readable {
            config.push_str(&format!("{name} = {value}\n"));
        }
        let text = |name| self.unreadable_text(name).unwrap_or(UNREADABLE);
        self.unreadable().fold(config, |config, name| config + &format!("{name} = {}\n", text(name)))
    }

    /// Assigns a key, like a further override at the end of the command line.
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
            (Some(default), true) => text::has_to_be_default(key, value.as_str(), expected, default),
            (Some(default), false) if !decides => text::has_to_be_used(key, value.as_str(), expected, default),
            _ => text::has_to_be(key, value.as_str(), expected),
        };
        self.remark(key, Severity::Error, said);
        if decides && let Some(setting) = self.values.get(key) {
            let origin = setting.origin;
            self.set_unevaluated(key, origin, &value);
        }
    }

    /// Returns whether a key's value is from an argument instead of a file.
    #[must_use]
    pub fn is_argument(&self, key: &str) -> bool {
        let setting = self.values.get(key).or_else(|| self.unknown.get(key));
        setting.is_some_and(|setting| self.source_name(&setting.origin).starts_with("--"))
    }

    /// Records a problem about `key` once, at the position of its value.
    fn remark(&mut self, key: &str, severity: Severity, message: Text) {
        let origin = self.values.get(key).or_else(|| self.unknown.get(key)).map(|s| s.origin);
        let (source, line, column) = match &origin {
            Some(o) => (self.source_name(o).to_owned(), o.line, o.column),
            None => (key.to_owned(), 0, 0),
        };
        // An argument has no line or column.
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
        said(&s, &["c.py:2:14: batch_size is the float 12.0, but nanoGPT needs an int"]);
        assert!(s.problems.first_stop().is_some());
    }

    #[test]
    fn wrong_type_is_reported_and_default_used() {
        let mut s = file("batch_size = 'big'\nn_layer = -1\ndropout = None\nblock_size = 0.5");
        assert_eq!(s.get_u64("batch_size"), Some(12));
        assert_eq!(s.get_u64("n_layer"), Some(12));
        assert_eq!(s.get_f64("dropout"), Some(0.0));
        assert_eq!(s.get_u64("block_size"), Some(1024));
        said(
            &s,
            &[
                "c.py:1:14: batch_size is 'big', but it must be a whole number, 1 or more",
                "c.py:2:11: n_layer is -1; it must be from 1 to 1024",
                "c.py:3:11: dropout is None, but it must be a number",
                "c.py:4:14: block_size is 0.5, but it must be a whole number, 1 or more",
            ],
        );
    }

    #[test]
    fn negative_argument_names_the_range() {
        let mut s = read(&[Source::Override { text: "--batch_size=-3".into() }]);
        assert_eq!(s.get_u64("batch_size"), Some(12));
        said(&s, &["--batch_size=-3: batch_size is -3; it must be from 1 to 1099511627776"]);
    }

    #[test]
    fn derived_keys_are_in_no_config() {
        let arguments =
            ["--batch-size=4", "--größe=3", "--n layer=2"].map(|text| Source::Override { text: text.into() });
        // The intended values of two of them are known, but their runs cannot be planned.
        let config = "größe = 3\nbatch_size = unknown\nn_layer = unknown\n";
        assert_eq!(read(&arguments).to_config(), config);
    }

    #[test]
    fn config_keeps_the_text_of_an_unreadable_value() {
        assert_eq!(file("compile = maybe\nn_layer = 6").to_config(), "n_layer = 6\ncompile = maybe\n");
        assert_eq!(file("batch_size = f(2)").to_config(), "batch_size = f(2)\n");
        // A name that has a value in the config would be evaluated there.
        assert_eq!(file("batch_size = f(n_layer)").to_config(), "batch_size = unknown\n");
    }

    #[test]
    fn config_of_a_run_that_stops_names_the_place() {
        let config = file("n_layer = 6\nx = = 3").to_config();
        let stop = "raise ValueError('error at c.py:2')\n";
        assert_eq!(config, format!("{stop}n_layer = 6\n"));
        assert_eq!(file(&config).to_config(), config);
    }

    #[test]
    fn switches_follow_pythons_truth() {
        let mut s = file("compile = 0\nbias = 'False'\nwandb_log = None");
        assert_eq!(s.get_bool("compile"), Some(false));
        assert_eq!(s.get_bool("bias"), Some(true));
        assert_eq!(s.get_bool("wandb_log"), Some(false));
        said(&s, &["c.py:2:8: bias is the string 'False', which Python treats as True"]);
    }
}
