//! Splits the bytes of a pickle of protocol 2 to 5 into opcodes.

use super::Problem;

/// Longest text that is kept. Longer ones, and bytes of any length, are skipped without being stored.
const MAX_TEXT_BYTES: usize = 1 << 16;

/// An opcode with its argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Op<'a> {
    /// Nothing for a snapshot: the protocol, or the length of a frame.
    Ignored,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    /// A value that no field of a snapshot has, such as bytes. Its bytes are skipped.
    Opaque {
        skip: u64,
    },
    EmptyDict,
    EmptyList,
    EmptyTuple,
    Mark,
    /// The values above the mark become a list or a tuple.
    List,
    /// The values above the mark become a dict.
    Dict,
    /// That number of values become a tuple.
    Tuple(usize),
    /// One key and its value, or all above the mark, go into the dict below.
    SetItem,
    SetItems,
    /// One value, or all above the mark, go into the list below.
    Append,
    Appends,
    Pop,
    PopMark,
    Dup,
    Get(u32),
    Put(u32),
    Memoize,
    /// That number of values become one that is opaque: a class, or the result of a call, which is not executed.
    Replace(usize),
    /// The state of an object, which is ignored.
    Build,
    Stop,
}

/// Why no opcode is read.
pub(super) enum Stop {
    /// The rest of the opcode is missing so far.
    Incomplete,
    Invalid(Problem),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Invalid(problem)
    }
}

/// Reads opcodes from the bytes that are there.
pub(super) struct Lexer<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Lexer<'a> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let rest = self.bytes.get(self.at..).ok_or(Stop::Incomplete)?;
        let taken = rest.first_chunk::<N>().ok_or(Stop::Incomplete)?;
        self.at += N;
        Ok(*taken)
    }

    #[inline]
    fn u8(&mut self) -> Result<u8, Stop> {
        let [byte] = self.take()?;
        Ok(byte)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, Stop> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn slice(&mut self, n: usize) -> Result<&'a [u8], Stop> {
        let end = self.at.checked_add(n).ok_or(Stop::Incomplete)?;
        let taken = self.bytes.get(self.at..end).ok_or(Stop::Incomplete)?;
        self.at = end;
        Ok(taken)
    }

    /// A text of a length in bytes.
    fn text(&mut self, n: u64) -> Result<Op<'a>, Stop> {
        match usize::try_from(n) {
            Ok(length) if length <= MAX_TEXT_BYTES => {
                let text = std::str::from_utf8(self.slice(length)?).map_err(|_| Problem::Text)?;
                Ok(Op::Text(text))
            }
            _ => Ok(Op::Opaque { skip: n }),
        }
    }

    /// An integer of that number of bytes, least significant first.
    fn long(&mut self, n: u32) -> Result<Op<'a>, Stop> {
        if n > 8 {
            return Ok(Op::Opaque { skip: n.into() });
        }
        let bytes = self.slice(n as usize)?;
        let sign = bytes.last().is_some_and(|last| last & 0x80 != 0);
        let mut whole = [if sign { 0xff } else { 0 }; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        Ok(Op::Int(i64::from_le_bytes(whole)))
    }

    /// Skips a line.
    fn line(&mut self) -> Result<(), Stop> {
        let rest = self.bytes.get(self.at..).ok_or(Stop::Incomplete)?;
        let line = &rest[..rest.len().min(MAX_TEXT_BYTES)];
        match line.iter().position(|&byte| byte == b'\n') {
            Some(end) => {
                self.at += end + 1;
                Ok(())
            }
            None if rest.len() >= MAX_TEXT_BYTES => Err(Problem::Text.into()),
            None => Err(Stop::Incomplete),
        }
    }

    /// The next opcode.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Op<'a>, Stop> {
        Ok(match self.u8()? {
            b'h' => Op::Get(self.u8()?.into()),
            b'j' => Op::Get(self.u32()?),
            0x94 => Op::Memoize,
            b'K' => Op::Int(self.u8()?.into()),
            b'M' => Op::Int(u16::from_le_bytes(self.take()?).into()),
            b'J' => Op::Int(i32::from_le_bytes(self.take()?).into()),
            0x8a => {
                let n = self.u8()?;
                self.long(n.into())?
            }
            0x8b => {
                let n = self.u32()?;
                self.long(n)?
            }
            0x8c | b'U' => {
                let n = self.u8()?;
                self.text(n.into())?
            }
            b'X' | b'T' => {
                let n = self.u32()?;
                self.text(n.into())?
            }
            0x8d => {
                let n = u64::from_le_bytes(self.take()?);
                self.text(n)?
            }
            b'}' => Op::EmptyDict,
            b']' => Op::EmptyList,
            b')' => Op::EmptyTuple,
            b'(' => Op::Mark,
            b'u' => Op::SetItems,
            b's' => Op::SetItem,
            b'e' | 0x90 => Op::Appends,
            b'a' => Op::Append,
            b'q' => Op::Put(self.u8()?.into()),
            b'r' => Op::Put(self.u32()?),
            0x85 => Op::Tuple(1),
            0x86 => Op::Tuple(2),
            0x87 => Op::Tuple(3),
            b't' | b'l' | 0x91 => Op::List,
            b'd' => Op::Dict,
            b'N' => Op::None,
            0x88 => Op::Bool(true),
            0x89 => Op::Bool(false),
            b'G' => Op::Float(f64::from_be_bytes(self.take()?)),
            b'C' => Op::Opaque { skip: self.u8()?.into() },
            b'B' => Op::Opaque { skip: self.u32()?.into() },
            0x8e | 0x96 => Op::Opaque { skip: u64::from_le_bytes(self.take()?) },
            0x8f => Op::Opaque { skip: 0 },
            b'0' => Op::Pop,
            b'1' => Op::PopMark,
            b'2' => Op::Dup,
            b'c' => {
                self.line()?;
                self.line()?;
                Op::Replace(0)
            }
            0x93 | b'R' | 0x81 => Op::Replace(2),
            0x92 => Op::Replace(3),
            b'Q' => Op::Replace(1),
            b'b' => Op::Build,
            0x80 => {
                let version = self.u8()?;
                if !(2..=5).contains(&version) {
                    return Err(Problem::NotAPickle.into());
                }
                Op::Ignored
            }
            0x95 => {
                self.take::<8>()?;
                Op::Ignored
            }
            b'.' => Op::Stop,
            other => return Err(Problem::Opcode(other).into()),
        })
    }
}
