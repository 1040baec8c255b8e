//! The pickle machine: executes opcodes, but no call.

use super::{Call, Cause, Id, PickleError, Value};

/// Python's pickle machine: a stack with marks, and a memo. They hold only indices of values.
#[derive(Debug, Default)]
pub struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    opcode_at: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: Vec<Option<Id>>,
}

type Step<T> = Result<T, PickleError>;

impl<'a> Machine<'a> {
    /// Executes a pickle. Returns its values, and the index of the top-level one.
    pub fn run(bytes: &'a [u8]) -> Step<(Vec<Value>, Id)> {
        let mut machine = Machine { bytes, ..Machine::default() };
        loop {
            machine.opcode_at = machine.at;
            let opcode = machine.byte()?;
            if opcode == b'.' {
                let root = machine.pop()?;
                return Ok((machine.values, root));
            }
            machine.step(opcode)?;
        }
    }

    /// Executes an opcode for plain values, for calls, or for references to values outside the pickle. All others are
    /// errors.
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
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'I' | b'L' | b'J' | b'K' | b'M' | 0x8a | 0x8b => self.integer(opcode),
            b'F' | b'G' => self.float(opcode),
            b'S' | b'T' | b'U' | b'V' | b'X' | 0x8c | 0x8d => self.text(opcode),
            b'B' | b'C' | 0x8e | 0x96 => self.blob(opcode),
            b']' | b')' | 0x8f => self.push(Value::List(vec![])),
            b'l' | b't' | 0x91 | 0x85..=0x87 => self.list(opcode),
            b'a' | b'e' | 0x90 => self.append(opcode),
            b'}' => self.push(Value::Dict(vec![])),
            b'd' | b's' | b'u' => self.dict(opcode),
            b'c' | 0x93 => self.global(opcode),
            b'R' | 0x81 => self.call(),
            // The state of an object is not used.
            b'b' => self.pop().map(drop),
            b'Q' => {
                let name = self.pop()?;
                self.push(Value::Persistent(name))
            }
            _ => Err(self.error(Cause::Opcode(opcode))),
        }
    }

    fn protocol(&mut self) -> Step<()> {
        match self.byte()? {
            0..=5 => Ok(()),
            protocol => Err(self.error(Cause::Protocol(protocol))),
        }
    }

    /// Stores the top value in the memo.
    fn keep(&mut self, opcode: u8) -> Step<()> {
        let key = match opcode {
            b'p' => self.line_number()?,
            b'q' => self.number(1)?,
            b'r' => self.number(4)?,
            _ => self.memo.len() as u64,
        };
        let top = self.top()?;
        // Each entry takes at least one byte of the pickle, which bounds the size of the memo.
        let Some(place) = usize::try_from(key).ok().filter(|place| *place < self.bytes.len()) else {
            return Err(self.error(Cause::MemoTooLarge(key)));
        };
        if place >= self.memo.len() {
            self.memo.resize(place + 1, None);
        }
        self.memo[place] = Some(top);
        Ok(())
    }

    /// Pushes a value from the memo.
    fn recall(&mut self, opcode: u8) -> Step<()> {
        let key = match opcode {
            b'g' => self.line_number()?,
            b'h' => self.number(1)?,
            _ => self.number(4)?,
        };
        let value = usize::try_from(key).ok().and_then(|place| *self.memo.get(place)?);
        self.stack.push(value.ok_or_else(|| self.error(Cause::NoMemo(key)))?);
        Ok(())
    }

    fn integer(&mut self, opcode: u8) -> Step<()> {
        let value = match opcode {
            b'I' | b'L' => {
                // "00" and "01" are False and True in Python; here they become 0 and 1.
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
        self.push(value.map_or(Value::Opaque, Value::Int))
    }

    /// Reads a little-endian two's complement integer of any length. Returns `None` for more than 64 bits.
    fn long(&mut self, count: u64) -> Step<Option<i64>> {
        let bytes = self.take(count)?;
        let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
        let (low, high) = bytes.split_at(bytes.len().min(8));
        let mut wide = [fill; 8];
        wide[..low.len()].copy_from_slice(low);
        let number = i64::from_le_bytes(wide);
        // Bytes that only extend the sign do not change the number.
        let is_whole = high.iter().all(|byte| *byte == fill) && (number < 0) == (fill == 0xff);
        Ok(is_whole.then_some(number))
    }

    fn float(&mut self, opcode: u8) -> Step<()> {
        if opcode == b'G' {
            let bytes = self.array()?;
            return self.push(Value::Float(f64::from_be_bytes(bytes)));
        }
        // Text of protocol 0 has no use, and a parser of floats would lengthen pages.
        self.line()?;
        self.push(Value::Opaque)
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
                // An unpaired surrogate is valid in a Python string, but not in Rust.
                String::from_utf8(self.take(count)?.to_vec()).ok()
            }
        };
        self.push(text.map_or(Value::Opaque, Value::Text))
    }

    fn blob(&mut self, opcode: u8) -> Step<()> {
        let count = self.number(match opcode {
            b'C' => 1,
            b'B' => 4,
            _ => 8,
        })?;
        self.take(count)?;
        self.push(Value::Opaque)
    }

    fn list(&mut self, opcode: u8) -> Step<()> {
        let items = match opcode {
            0x85..=0x87 => self.pop_some(usize::from(opcode - 0x84))?,
            _ => self.above_mark()?,
        };
        self.push(Value::List(items))
    }

    fn append(&mut self, opcode: u8) -> Step<()> {
        let items = if opcode == b'a' { self.pop_some(1)? } else { self.above_mark()? };
        let list = self.top()?;
        if let Value::List(known) = &mut self.values[list] {
            known.extend(items);
        }
        Ok(())
    }

    fn dict(&mut self, opcode: u8) -> Step<()> {
        let items = if opcode == b's' { self.pop_some(2)? } else { self.above_mark()? };
        if items.len() % 2 != 0 {
            return Err(self.error(Cause::NoValue));
        }
        if opcode == b'd' {
            self.push(Value::Dict(vec![]))?;
        }
        let dict = self.top()?;
        if let Value::Dict(pairs) | Value::Call(Call { pairs, .. }) = &mut self.values[dict] {
            pairs.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        }
        Ok(())
    }

    fn global(&mut self, opcode: u8) -> Step<()> {
        let name = if opcode == b'c' {
            let [module, name] = [self.line()?, self.line()?].map(String::from_utf8_lossy);
            Some(format!("{module} {name}"))
        } else {
            let names = self.pop_some(2)?;
            match (&self.values[names[0]], &self.values[names[1]]) {
                (Value::Text(module), Value::Text(name)) => Some(format!("{module} {name}")),
                _ => None,
            }
        };
        self.push(name.map_or(Value::Opaque, Value::Global))
    }

    fn call(&mut self) -> Step<()> {
        let words = self.pop_some(2)?;
        self.push(Value::Call(Call { function: words[0], args: words[1], pairs: vec![] }))
    }

    fn push(&mut self, value: Value) -> Step<()> {
        self.stack.push(self.values.len());
        self.values.push(value);
        Ok(())
    }

    fn top(&self) -> Step<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack[floor..].last().copied().ok_or_else(|| self.error(Cause::Stack))
    }

    fn pop(&mut self) -> Step<Id> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Pops `n` values and returns them in stack order.
    fn pop_some(&mut self, n: usize) -> Step<Vec<Id>> {
        let mut items = (0..n).map(|_| self.pop()).collect::<Step<Vec<Id>>>()?;
        items.reverse();
        Ok(items)
    }

    fn above_mark(&mut self) -> Step<Vec<Id>> {
        match self.marks.pop() {
            Some(mark) => Ok(self.stack.split_off(mark)),
            None => Err(self.error(Cause::Stack)),
        }
    }

    fn take(&mut self, count: u64) -> Step<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = usize::try_from(count).ok().and_then(|count| rest.get(..count)) else {
            return Err(self.error(Cause::Truncated));
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

    /// Reads a little-endian unsigned integer of `width` bytes, at most 8.
    fn number(&mut self, width: usize) -> Step<u64> {
        let bytes = self.take(width as u64)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Reads up to the end of the line, which is not included.
    fn line(&mut self) -> Step<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            return Err(self.error(Cause::Truncated));
        };
        self.at += end + 1;
        Ok(&rest[..end])
    }

    fn line_number(&mut self) -> Step<u64> {
        let line = self.line()?;
        let number = std::str::from_utf8(line).ok().and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| self.error(Cause::Number))
    }

    const fn error(&self, why: Cause) -> PickleError {
        PickleError { at: self.opcode_at, why }
    }
}

/// Parses Python 2's `repr` of a string, as used in protocol 0.
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

/// Decodes Python's raw-unicode-escape: Latin-1 with `\uXXXX` and `\UXXXXXXXX`.
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
