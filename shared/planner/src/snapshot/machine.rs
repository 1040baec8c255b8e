//! Runs the opcodes of a pickle. A dict or a list becomes a typed value as soon as its items are known, so the tree of
//! Python's objects never exists.

use super::{
    Problem, ReadError, Snapshot,
    lexer::{Lexer, Op, Stop},
    shapes::{Object, Shapes, Value},
};

/// Maximum number of values on the stack. A pickle of C++ has a whole trace there.
const MAX_STACK: usize = 1 << 25;
/// Maximum number of open marks.
const MAX_MARKS: usize = 1 << 10;
/// Maximum number of memo entries.
const MAX_MEMO: usize = 1 << 27;
/// Maximum number of memoized values that are neither texts nor objects; no snapshot has one.
const MAX_RARE: usize = 1 << 20;

/// Memo entries by kind, in the two highest bits.
const TEXT: u32 = 0;
const OBJECT: u32 = 1 << 30;
const RARE: u32 = 2 << 30;
const KIND: u32 = 3 << 30;

/// Reader of a snapshot.
#[derive(Debug, Default)]
pub struct Reader {
    /// Bytes of the opcode that is not complete.
    rest: Vec<u8>,
    offset: u64,
    /// Bytes of a value that are still to be skipped.
    skip: u64,
    stack: Vec<Value>,
    /// Length of the stack at each open mark.
    marks: Vec<usize>,
    memo: Vec<u32>,
    /// Memoized values that are neither texts nor objects.
    rare: Vec<Value>,
    shapes: Shapes,
    has_ended: bool,
}

impl Reader {
    /// Takes the next bytes of the file. Bytes behind the end of the pickle are ignored, as Python does.
    ///
    /// # Errors
    /// An opcode is invalid.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        if self.has_ended {
            return Ok(());
        }
        let mut bytes = bytes;
        if self.rest.is_empty() {
            self.skip(&mut bytes);
        }
        self.rest.extend_from_slice(bytes);
        let mut rest = std::mem::take(&mut self.rest);
        let used = self.take(&rest)?;
        rest.drain(..used.min(rest.len()));
        self.rest = rest;
        Ok(())
    }

    /// Leaves out the bytes of a value that is skipped.
    fn skip(&mut self, bytes: &mut &[u8]) {
        let n = usize::try_from(self.skip).map_or(bytes.len(), |skip| skip.min(bytes.len()));
        *bytes = &bytes[n..];
        self.skip -= n as u64;
        self.offset += n as u64;
    }

    /// Runs all complete opcodes, and returns the number of their bytes.
    fn take(&mut self, bytes: &[u8]) -> Result<usize, ReadError> {
        let mut lexer = Lexer { bytes, at: 0 };
        while lexer.at < bytes.len() {
            let start = lexer.at;
            if self.offset == 0 && bytes[0] != super::PICKLE_START {
                return Err(self.error(Problem::NotAPickle));
            }
            let op = match lexer.next() {
                Ok(op) => op,
                Err(Stop::Incomplete) => return Ok(start),
                Err(Stop::Invalid(problem)) => return Err(self.error(problem)),
            };
            self.run(op).map_err(|problem| self.error(problem))?;
            self.offset += (lexer.at - start) as u64;
            if self.skip > 0 {
                let mut rest = &bytes[lexer.at..];
                self.skip(&mut rest);
                lexer.at = bytes.len() - rest.len();
            }
            if self.has_ended {
                return Ok(bytes.len());
            }
        }
        Ok(lexer.at)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The file is cut off, or the pickle is not a snapshot.
    pub fn finish(mut self) -> Result<Snapshot, ReadError> {
        if !self.has_ended {
            return Err(self.error(if self.offset == 0 { Problem::NotAPickle } else { Problem::Cut }));
        }
        let not_a_snapshot = self.error(Problem::NotASnapshot);
        // Neither is needed for the result, and both are large.
        (self.memo, self.rest) = (Vec::new(), Vec::new());
        let [root] = *self.stack else { return Err(not_a_snapshot) };
        self.shapes.finish(root).map_err(|problem| ReadError { problem, ..not_a_snapshot })
    }

    const fn error(&self, problem: Problem) -> ReadError {
        ReadError { offset: self.offset, problem }
    }

    fn push_value(&mut self, value: Value) -> Result<(), Problem> {
        if self.stack.len() >= MAX_STACK {
            return Err(Problem::TooMany);
        }
        self.stack.push(value);
        Ok(())
    }

    /// Removes values of the current level.
    fn pop(&mut self) -> Result<Value, Problem> {
        if self.stack.len() <= self.marks.last().copied().unwrap_or_default() {
            return Err(Problem::Stack);
        }
        self.stack.pop().ok_or(Problem::Stack)
    }

    /// Start of the values above the mark, which is removed.
    fn pop_mark(&mut self) -> Result<usize, Problem> {
        self.marks.pop().filter(|&mark| mark <= self.stack.len()).ok_or(Problem::Stack)
    }

    /// The container below a position of the stack, and the values above it.
    fn below(&mut self, start: usize) -> Result<(Option<u32>, &mut Shapes, &[Value]), Problem> {
        let floor = self.marks.last().copied().unwrap_or_default();
        let at = start.checked_sub(1).filter(|&at| at >= floor).ok_or(Problem::Stack)?;
        let container = match self.stack.get(at).ok_or(Problem::Stack)? {
            Value::Object(object) => Some(*object),
            // A value whose contents no field needs.
            _ => None,
        };
        Ok((container, &mut self.shapes, self.stack.get(start..).ok_or(Problem::Stack)?))
    }

    fn set_items(&mut self, start: usize) -> Result<(), Problem> {
        let (dict, shapes, pairs) = self.below(start)?;
        if pairs.len() % 2 != 0 {
            return Err(Problem::Stack);
        }
        if let Some(dict) = dict {
            shapes.set_items(dict, pairs)?;
        }
        self.stack.truncate(start);
        Ok(())
    }

    fn append(&mut self, start: usize) -> Result<(), Problem> {
        let (list, shapes, items) = self.below(start)?;
        if let Some(list) = list {
            shapes.append(list, items)?;
        }
        self.stack.truncate(start);
        Ok(())
    }

    /// Replaces the values from `start` on by a new container that holds them.
    fn gather(&mut self, start: usize, is_dict: bool) -> Result<(), Problem> {
        let object = self.shapes.new_object(if is_dict { Object::EMPTY_DICT } else { Object::EMPTY_LIST })?;
        let items = self.stack.get(start..).ok_or(Problem::Stack)?;
        if is_dict {
            if items.len() % 2 != 0 {
                return Err(Problem::Stack);
            }
            self.shapes.set_items(object, items)?;
        } else {
            self.shapes.append(object, items)?;
        }
        self.stack.truncate(start);
        self.push_value(Value::Object(object))
    }

    /// Start of the last `n` values, all above the current mark.
    fn last(&self, n: usize) -> Result<usize, Problem> {
        let floor = self.marks.last().copied().unwrap_or_default();
        self.stack.len().checked_sub(n).filter(|&start| start >= floor).ok_or(Problem::Stack)
    }

    fn memo_entry(&mut self) -> Result<u32, Problem> {
        let value = self.stack.get(self.last(1)?).copied().ok_or(Problem::Stack)?;
        let entry = match value {
            Value::Text(text) => TEXT | text,
            Value::Object(object) => OBJECT | object,
            other => {
                self.rare.push(other);
                let index = u32::try_from(self.rare.len() - 1).map_err(|_| Problem::TooMany)?;
                if self.rare.len() > MAX_RARE {
                    return Err(Problem::TooMany);
                }
                RARE | index
            }
        };
        if self.memo.len() >= MAX_MEMO {
            return Err(Problem::TooMany);
        }
        Ok(entry)
    }

    fn get(&mut self, index: u32) -> Result<(), Problem> {
        let entry = self.memo.get(index as usize).copied().ok_or(Problem::Memo)?;
        let index = entry & !KIND;
        let value = match entry & KIND {
            TEXT => Value::Text(index),
            OBJECT => Value::Object(index),
            _ => self.rare.get(index as usize).copied().ok_or(Problem::Memo)?,
        };
        self.push_value(value)
    }

    /// Stores the value on top. Python and PyTorch number the entries without gaps.
    fn put(&mut self, index: u32) -> Result<(), Problem> {
        let entry = self.memo_entry()?;
        let index = index as usize;
        if index == self.memo.len() {
            self.memo.push(entry);
        } else {
            *self.memo.get_mut(index).ok_or(Problem::Memo)? = entry;
        }
        Ok(())
    }

    #[inline]
    fn run(&mut self, op: Op<'_>) -> Result<(), Problem> {
        match op {
            Op::Get(index) => self.get(index),
            Op::Memoize => {
                let entry = self.memo_entry()?;
                self.memo.push(entry);
                Ok(())
            }
            Op::Int(number) => self.push_value(Value::Int(number)),
            Op::Text(text) => {
                let text = self.shapes.text(text)?;
                self.push_value(Value::Text(text))
            }
            Op::EmptyDict => {
                let object = self.shapes.new_object(Object::EMPTY_DICT)?;
                self.push_value(Value::Object(object))
            }
            Op::EmptyList | Op::EmptyTuple => {
                let object = self.shapes.new_object(Object::EMPTY_LIST)?;
                self.push_value(Value::Object(object))
            }
            Op::Mark => {
                if self.marks.len() >= MAX_MARKS {
                    return Err(Problem::TooMany);
                }
                self.marks.push(self.stack.len());
                Ok(())
            }
            Op::SetItems => {
                let start = self.pop_mark()?;
                self.set_items(start)
            }
            Op::SetItem => self.set_items(self.last(2)?),
            Op::Appends => {
                let start = self.pop_mark()?;
                self.append(start)
            }
            Op::Append => self.append(self.last(1)?),
            Op::List | Op::Dict => {
                let start = self.pop_mark()?;
                self.gather(start, op == Op::Dict)
            }
            Op::Tuple(n) => self.gather(self.last(n)?, false),
            Op::None => self.push_value(Value::None),
            Op::Bool(value) => self.push_value(Value::Bool(value)),
            Op::Float(value) => self.push_value(Value::Float(value)),
            Op::Opaque { skip } => {
                self.skip = skip;
                self.push_value(Value::Opaque)
            }
            Op::Put(index) => self.put(index),
            Op::Pop => match self.pop() {
                Ok(_) => Ok(()),
                // A pickle may pop a mark like a value.
                Err(_) => self.marks.pop().map(|_| ()).ok_or(Problem::Stack),
            },
            Op::PopMark => {
                let start = self.pop_mark()?;
                self.stack.truncate(start);
                Ok(())
            }
            Op::Dup => {
                let value = self.stack.get(self.last(1)?).copied().ok_or(Problem::Stack)?;
                self.push_value(value)
            }
            Op::Replace(n) => {
                let start = self.last(n)?;
                self.stack.truncate(start);
                self.push_value(Value::Opaque)
            }
            Op::Build => self.pop().map(|_| ()),
            Op::Ignored => Ok(()),
            Op::Stop => {
                self.has_ended = true;
                if self.marks.is_empty() && self.stack.len() == 1 { Ok(()) } else { Err(Problem::Stack) }
            }
        }
    }
}
