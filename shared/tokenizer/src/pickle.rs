//! Parser for pickles that executes nothing. A call becomes a value with the function's name and its arguments, which the
//! caller interprets or ignores.
//!
//! All protocols, 0 to 5, are read. Values are in one list and refer to each other by index, so memory use is
//! proportional to the pickle's length, and a value may contain itself.

mod machine;
#[cfg(test)]
mod tests;

use thiserror::Error;

use machine::Machine;

/// The index of a value.
pub type Id = usize;

/// Why a pickle cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("byte {at}: {why}")]
pub struct PickleError {
    /// Offset of the opcode in bytes.
    pub at: usize,
    /// The cause.
    pub why: Cause,
}

/// The cause of a [`PickleError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Cause {
    /// An opcode that is not allowed.
    #[error("unexpected opcode 0x{0:02x}")]
    Opcode(u8),
    /// An unsupported protocol version.
    #[error("unsupported pickle protocol {0}; 0 to 5 are read")]
    Protocol(u8),
    /// A memo entry that does not exist.
    #[error("memo entry {0} does not exist")]
    NoMemo(u64),
    /// A memo index larger than the pickle.
    #[error("memo index {0} is too large")]
    MemoTooLarge(u64),
    /// A dict with an odd number of items.
    #[error("a key has no value")]
    NoValue,
    /// The stack is empty, or has too few values above the mark.
    #[error("a value is missing on the stack")]
    Stack,
    /// The pickle is truncated.
    #[error("the pickle is truncated")]
    Truncated,
    /// An invalid number.
    #[error("invalid number")]
    Number,
}

/// A pickled value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Python's `None`.
    None,
    /// A boolean.
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A float of 64 bits.
    Float(f64),
    /// A string.
    Text(String),
    /// A list, a tuple or a set.
    List(Vec<Id>),
    /// Keys and values of a dict; later entries override earlier ones.
    Dict(Vec<(Id, Id)>),
    /// A class or a function by its module and name, such as `torch FloatStorage`.
    Global(String),
    /// The result of a call.
    Call(Call),
    /// A value outside the pickle, named by another value.
    Persistent(Id),
    /// Any other value, such as bytes or a larger integer.
    Opaque,
}

/// The result of a call, which is not executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The called value, usually a [`Value::Global`].
    pub function: Id,
    /// The arguments, usually a [`Value::List`].
    pub args: Id,
    /// Entries that were inserted into the result, as into an `OrderedDict`.
    pub pairs: Vec<(Id, Id)>,
}

/// A parsed pickle.
#[derive(Debug)]
pub struct Pickle {
    values: Vec<Value>,
    root: Id,
    /// Calls whose results may be used as dicts.
    dicts: &'static [&'static str],
}

impl Pickle {
    /// Parses the first pickle in `bytes`. `dicts` lists the classes whose instances are read as dicts, such as
    /// `collections OrderedDict`.
    ///
    /// # Errors
    /// The pickle is truncated or invalid, or has an opcode that is not allowed.
    pub fn read(bytes: &[u8], dicts: &'static [&'static str]) -> Result<Self, PickleError> {
        let (values, root) = Machine::run(bytes)?;
        Ok(Self { values, root, dicts })
    }

    /// Returns the top-level value.
    #[must_use]
    pub fn root(&self) -> &Value {
        self.value(self.root)
    }

    /// Returns the value of an index.
    ///
    /// # Panics
    /// The index belongs to another pickle.
    #[must_use]
    pub fn value(&self, id: Id) -> &Value {
        &self.values[id]
    }

    /// Returns the number of values.
    #[must_use]
    pub fn n_values(&self) -> usize {
        self.values.len()
    }

    /// Returns whether a value is a dict.
    #[must_use]
    pub fn is_dict(&self, value: &Value) -> bool {
        self.entries(value).is_some()
    }

    /// Returns a dict's keys and values. Other values yield nothing.
    pub fn pairs<'a>(&'a self, dict: &'a Value) -> impl ExactSizeIterator<Item = (&'a Value, &'a Value)> {
        let pairs = self.entries(dict).unwrap_or_default();
        pairs.iter().map(|(key, value)| (self.value(*key), self.value(*value)))
    }

    fn entries<'a>(&self, value: &'a Value) -> Option<&'a [(Id, Id)]> {
        match value {
            Value::Dict(pairs) => Some(pairs),
            Value::Call(call) if self.called(call).is_some_and(|name| self.dicts.contains(&name)) => Some(&call.pairs),
            _ => None,
        }
    }

    /// Returns a dict's value for a text key.
    #[must_use]
    pub fn get<'a>(&'a self, dict: &Value, name: &str) -> Option<&'a Value> {
        self.last(dict, |key| matches!(key, Value::Text(text) if text == name))
    }

    /// Returns a dict's value for an integer key.
    #[must_use]
    pub fn get_int<'a>(&'a self, dict: &Value, number: i64) -> Option<&'a Value> {
        self.last(dict, |key| *key == Value::Int(number))
    }

    /// Returns the last value whose key matches.
    fn last<'a>(&'a self, dict: &Value, is_key: impl Fn(&Value) -> bool) -> Option<&'a Value> {
        let found = self.entries(dict)?.iter().rev().find(|(key, _)| is_key(self.value(*key)));
        found.map(|(_, value)| self.value(*value))
    }

    /// Returns a list's values. Other values yield nothing.
    pub fn items<'a>(&'a self, list: &'a Value) -> impl ExactSizeIterator<Item = &'a Value> {
        let items: &[Id] = if let Value::List(items) = list { items } else { &[] };
        items.iter().map(|item| self.value(*item))
    }

    /// Returns the module and the name of the called function; `None` if it is no global.
    #[must_use]
    pub fn called(&self, call: &Call) -> Option<&str> {
        if let Value::Global(name) = self.value(call.function) { Some(name) } else { None }
    }
}
