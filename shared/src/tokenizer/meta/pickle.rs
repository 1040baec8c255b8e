//! Python's pickles as far as a `meta.pkl` needs them: read with nothing run, and written.
//!
//! Values lie in one list and name each other by number, so that a pickle that copies, nests or contains itself takes no
//! more memory than its length, and no more stack than any other.

use thiserror::Error;

use super::MetaError;

/// What is wrong at a place of a pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Wrong {
    /// A step that no vocabulary takes.
    #[error("0x{0:02x} is no opcode that a meta.pkl has")]
    Opcode(u8),
    /// A later pickle.
    #[error("it is pickled with protocol {0}; 0 to 5 are read")]
    Protocol(u8),
    /// A value that was not kept.
    #[error("nothing is kept under number {0}")]
    NotKept(u64),
    /// More values than bytes.
    #[error("number {0} is beyond what such a file keeps")]
    KeptBeyond(u64),
    /// A dict with an odd number of items.
    #[error("a key has no value")]
    NoValue,
    /// From an empty stack, or below its mark.
    #[error("it takes more than there is")]
    TooFew,
    /// The file is cut.
    #[error("it ends before the pickle does")]
    End,
    /// Letters where digits belong.
    #[error("a number is not written in digits")]
    Digits,
}

/// One value.
#[derive(Debug, PartialEq)]
pub enum Value {
    /// An integer of 64 bits.
    Int(i64),
    /// A string.
    Text(String),
    /// Keys and values by number, later ones over earlier ones. An object that was called for is one, too: a dict's
    /// relatives (`OrderedDict`, `Counter`) are filled like it.
    Dict(Vec<(usize, usize)>),
    /// What a meta.pkl may hold and nobody reads.
    Other,
}

/// A pickle that was read.
#[derive(Debug)]
pub struct Pickle {
    values: Vec<Value>,
    root: usize,
}

impl Pickle {
    /// Reads the first pickle of these bytes.
    pub fn load(bytes: &[u8]) -> Result<Self, MetaError> {
        let mut machine = Machine { bytes, at: 0, opcode_at: 0, ..Machine::default() };
        loop {
            machine.opcode_at = machine.at;
            let opcode = machine.byte()?;
            if opcode == b'.' {
                let root = machine.pop()?;
                return Ok(Self { values: machine.values, root });
            }
            machine.step(opcode)?;
        }
    }

    /// The value that was pickled.
    pub fn root(&self) -> &Value {
        &self.values[self.root]
    }

    /// The keys and values of a dict.
    pub fn pairs<'a>(&'a self, dict: &'a [(usize, usize)]) -> impl Iterator<Item = (&'a Value, &'a Value)> {
        dict.iter().map(|(key, value)| (&self.values[*key], &self.values[*value]))
    }

    /// What a dict has under a name.
    pub fn get(&self, dict: &Value, name: &str) -> Option<&Value> {
        let Value::Dict(pairs) = dict else { return None };
        let is_named = |(key, _): &&(usize, usize)| matches!(&self.values[*key], Value::Text(text) if text == name);
        pairs.iter().rev().find(is_named).map(|(_, value)| &self.values[*value])
    }
}

/// Python's pickle machine: a stack, marks in it, and a memo.
#[derive(Debug, Default)]
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    opcode_at: usize,
    values: Vec<Value>,
    stack: Vec<usize>,
    marks: Vec<usize>,
    /// Values by their numbers, which count up; [`NOT_KEPT`] where one is left out.
    memo: Vec<usize>,
}

/// No value of that number.
const NOT_KEPT: usize = usize::MAX;

type Step<T> = Result<T, MetaError>;

impl<'a> Machine<'a> {
    fn step(&mut self, opcode: u8) -> Step<()> {
        match opcode {
            0x80 => self.protocol(),
            0x95 => self.take(8).map(drop),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => self.pop().map(drop),
            b'1' => self.above_mark().map(drop),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
                Ok(())
            }
            b'p' | b'q' | b'r' | 0x94 => self.keep(opcode),
            b'g' | b'h' | b'j' => self.recall(opcode),
            b'I' | b'L' | b'J' | b'K' | b'M' | 0x8a | 0x8b => self.integer(opcode),
            b'S' | b'T' | b'U' | b'V' | b'X' | 0x8c | 0x8d => self.text(opcode),
            b'N' | 0x88 | 0x89 | b']' | b')' | 0x8f => self.push(Value::Other),
            b'F' => {
                self.line()?;
                self.push(Value::Other)
            }
            b'G' => self.skip_value(8),
            b'B' => self.skip_counted(4),
            b'C' => self.skip_counted(1),
            0x8e | 0x96 => self.skip_counted(8),
            b'}' => self.push(Value::Dict(Vec::new())),
            b'd' | b's' | b'u' => self.dict(opcode),
            b'l' | b't' | 0x91 => {
                self.above_mark()?;
                self.push(Value::Other)
            }
            b'e' | 0x90 => self.above_mark().map(drop),
            b'a' => self.pop().map(drop),
            0x85..=0x87 => {
                for _ in 0x84..opcode {
                    self.pop()?;
                }
                self.push(Value::Other)
            }
            b'c' | 0x93 | b'R' | 0x81 | b'b' => self.object(opcode),
            _ => Err(self.wrong(Wrong::Opcode(opcode))),
        }
    }

    fn protocol(&mut self) -> Step<()> {
        match self.byte()? {
            0..=5 => Ok(()),
            protocol => Err(self.wrong(Wrong::Protocol(protocol))),
        }
    }

    /// Into the memo.
    fn keep(&mut self, opcode: u8) -> Step<()> {
        let key = match opcode {
            b'p' => self.line_number()?,
            b'q' => self.number(1)?,
            b'r' => self.number(4)?,
            _ => self.memo.len() as u64,
        };
        let top = self.top()?;
        // Each takes a byte at least: whatever the file says, its memo is no longer than it.
        let Some(place) = usize::try_from(key).ok().filter(|place| *place < self.bytes.len()) else {
            return Err(self.wrong(Wrong::KeptBeyond(key)));
        };
        if place >= self.memo.len() {
            self.memo.resize(place + 1, NOT_KEPT);
        }
        self.memo[place] = top;
        Ok(())
    }

    /// Out of the memo.
    fn recall(&mut self, opcode: u8) -> Step<()> {
        let key = match opcode {
            b'g' => self.line_number()?,
            b'h' => self.number(1)?,
            _ => self.number(4)?,
        };
        let value = usize::try_from(key).ok().and_then(|place| self.memo.get(place).copied());
        let Some(value) = value.filter(|value| *value != NOT_KEPT) else {
            return Err(self.wrong(Wrong::NotKept(key)));
        };
        self.stack.push(value);
        Ok(())
    }

    fn integer(&mut self, opcode: u8) -> Step<()> {
        let value = match opcode {
            b'I' | b'L' => {
                // "00" and "01" are False and True to Python, and read as 0 and 1 here.
                let line = self.line()?;
                std::str::from_utf8(line.strip_suffix(b"L").unwrap_or(line)).ok().and_then(|digits| digits.parse().ok())
            }
            b'J' => Some(i64::from(i32::from_le_bytes(self.array()?))),
            b'K' => Some(i64::from(self.byte()?)),
            b'M' => Some(i64::from(u16::from_le_bytes(self.array()?))),
            _ => {
                let count = self.number(if opcode == 0x8a { 1 } else { 4 })?;
                self.long(count)?
            }
        };
        self.push(value.map_or(Value::Other, Value::Int))
    }

    /// Two's complement of any length, lowest byte first; more than 64 bits are no number of ours.
    fn long(&mut self, count: u64) -> Step<Option<i64>> {
        let bytes = self.take(count)?;
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        let Some(low) = wide.get_mut(..bytes.len()) else { return Ok(None) };
        low.copy_from_slice(bytes);
        Ok(Some(i64::from_le_bytes(wide)))
    }

    fn text(&mut self, opcode: u8) -> Step<()> {
        let text = match opcode {
            b'S' => unquoted(self.line()?),
            b'V' => unescaped(self.line()?),
            _ => {
                let count = self.number(match opcode {
                    b'U' | 0x8c => 1,
                    b'T' | b'X' => 4,
                    _ => 8,
                })?;
                // Half a surrogate pair is a string to Python and no text.
                String::from_utf8(self.take(count)?.to_vec()).ok()
            }
        };
        self.push(text.map_or(Value::Other, Value::Text))
    }

    fn dict(&mut self, opcode: u8) -> Step<()> {
        let items = if opcode == b's' {
            let value = self.pop()?;
            vec![self.pop()?, value]
        } else {
            self.above_mark()?
        };
        if items.len() % 2 != 0 {
            return Err(self.wrong(Wrong::NoValue));
        }
        if opcode == b'd' {
            self.push(Value::Dict(Vec::new()))?;
        }
        let dict = self.top()?;
        if let Value::Dict(pairs) = &mut self.values[dict] {
            pairs.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        }
        Ok(())
    }

    /// Classes, calls and states: their words are passed over and stand for nothing.
    fn object(&mut self, opcode: u8) -> Step<()> {
        match opcode {
            b'c' => {
                self.line()?;
                self.line()?;
                self.push(Value::Other)
            }
            b'b' => self.pop().map(drop),
            0x93 => {
                self.pop()?;
                self.pop()?;
                self.push(Value::Other)
            }
            _ => {
                self.pop()?;
                self.pop()?;
                self.push(Value::Dict(Vec::new()))
            }
        }
    }

    fn skip_value(&mut self, count: u64) -> Step<()> {
        self.take(count)?;
        self.push(Value::Other)
    }

    fn skip_counted(&mut self, width: usize) -> Step<()> {
        let count = self.number(width)?;
        self.skip_value(count)
    }

    fn push(&mut self, value: Value) -> Step<()> {
        self.stack.push(self.values.len());
        self.values.push(value);
        Ok(())
    }

    fn top(&self) -> Step<usize> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack[floor..].last().copied().ok_or_else(|| self.wrong(Wrong::TooFew))
    }

    fn pop(&mut self) -> Step<usize> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn above_mark(&mut self) -> Step<Vec<usize>> {
        match self.marks.pop() {
            Some(mark) => Ok(self.stack.split_off(mark)),
            None => Err(self.wrong(Wrong::TooFew)),
        }
    }

    fn take(&mut self, count: u64) -> Step<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = usize::try_from(count).ok().and_then(|count| rest.get(..count)) else {
            return Err(self.wrong(Wrong::End));
        };
        self.at += taken.len();
        Ok(taken)
    }

    fn byte(&mut self) -> Step<u8> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    /// An unsigned number of so many bytes, lowest first.
    fn number(&mut self, width: usize) -> Step<u64> {
        let bytes = self.take(width as u64)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// To the end of the line, which is left out.
    fn line(&mut self) -> Step<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            return Err(self.wrong(Wrong::End));
        };
        self.at += end + 1;
        Ok(&rest[..end])
    }

    fn line_number(&mut self) -> Step<u64> {
        let line = self.line()?;
        let number = std::str::from_utf8(line).ok().and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| self.wrong(Wrong::Digits))
    }

    const fn wrong(&self, why: Wrong) -> MetaError {
        MetaError::Pickle { at: self.opcode_at, why }
    }
}

/// Python 2's `repr` of a string, as protocol 0 has it.
fn unquoted(line: &[u8]) -> Option<String> {
    let quote = *line.first().filter(|quote| [b'\'', b'"'].contains(quote))?;
    let inner = line.get(1..)?.strip_suffix(&[quote])?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.iter().copied();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'x' => u8::try_from(hex(&mut rest, 2)?).ok()?,
                other => other,
            },
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Python's raw-unicode-escape: Latin-1 with `\uXXXX` and `\UXXXXXXXX`.
fn unescaped(line: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            text.push(char::from(byte));
            continue;
        }
        let digits = match rest.next()? {
            b'u' => 4,
            b'U' => 8,
            _ => return None,
        };
        text.push(char::from_u32(hex(&mut rest, digits)?)?);
    }
    Some(text)
}

fn hex(digits: &mut impl Iterator<Item = u8>, count: usize) -> Option<u32> {
    (0..count).try_fold(0, |number, _| Some(number << 4 | char::from(digits.next()?).to_digit(16)?))
}

/// Writes protocol 2, which every Python since 2.3 reads.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Begins a pickle.
    pub fn new() -> Self {
        Self { bytes: vec![0x80, 2] }
    }

    /// A dict of what `items` writes: a key, its value, and so on.
    pub fn dict(&mut self, items: impl FnOnce(&mut Self)) {
        self.bytes.extend_from_slice(b"}(");
        items(self);
        self.bytes.push(b'u');
    }

    /// A string.
    pub fn text(&mut self, text: &str) {
        let length = u32::try_from(text.len()).expect("a word or a character");
        self.bytes.push(b'X');
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// An integer.
    pub fn int(&mut self, int: u32) {
        if let Ok(byte) = u8::try_from(int) {
            self.bytes.extend_from_slice(&[b'K', byte]);
        } else if let Ok(short) = u16::try_from(int) {
            self.bytes.push(b'M');
            self.bytes.extend_from_slice(&short.to_le_bytes());
        } else {
            self.bytes.push(b'J');
            self.bytes.extend_from_slice(&i32::try_from(int).expect("ids are below 2^31").to_le_bytes());
        }
    }

    /// The whole pickle.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }
}
