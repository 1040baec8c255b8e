//! Reads a recording as a stream: bytes in pieces of any length, a recording at the end.
//!
//! Nothing in a file is trusted. Each record is checked when it is complete, memory is proportional to the bytes read, and
//! an error has the offset of the record in the file.

use std::sync::Arc;

use crate::{
    dtype::Dtype,
    gpt::tensors::{MAX_TENSOR_BYTES, round_up},
    hardware::ComputeCapability,
};

use super::{Event, Label, MAGIC, MAX_LIVE_BYTES, Mark, Origin, Recording, Scratch, TensorRole, VERSION};

/// Maximum length of a text in bytes.
const MAX_TEXT_BYTES: u64 = 4096;
/// Maximum number of axes of a tensor.
const MAX_RANK: u64 = 16;
/// Maximum number of events.
const MAX_EVENTS: usize = 1 << 24;
/// Maximum number of notes.
const MAX_NOTES: usize = 64;
/// Dtypes by their number in a file.
const DTYPES: [Dtype; 11] = [
    Dtype::Float32,
    Dtype::Float16,
    Dtype::Bfloat16,
    Dtype::Float64,
    Dtype::Int64,
    Dtype::Int32,
    Dtype::Int16,
    Dtype::Int8,
    Dtype::Uint8,
    Dtype::Uint64,
    Dtype::Bool,
];

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The first bytes are others.
    #[error("it is not a recording of Headroom")]
    NotARecording,
    /// A newer program wrote the file.
    #[error("it has version {0} of the format, and this program reads version {VERSION}")]
    Version(u64),
    /// The file ends within a record, or has no end record.
    #[error("the file is cut off")]
    Cut,
    /// Bytes follow the end record.
    #[error("bytes follow the end of the recording")]
    Trailing,
    /// A number has more than 64 bits.
    #[error("a number exceeds 64 bits")]
    Number,
    /// A text is too long or not UTF-8.
    #[error("a text is not UTF-8, or longer than {MAX_TEXT_BYTES} bytes")]
    Text,
    /// A record has an unknown kind.
    #[error("a record has an unknown kind")]
    Kind,
    /// A number refers to nothing.
    #[error("a number refers to a missing text, tensor or block")]
    Reference,
    /// A size is too large.
    #[error("a tensor exceeds every GPU")]
    Size,
    /// The file has too many events or notes.
    #[error("it has more than {MAX_EVENTS} events")]
    TooMany,
    /// The end record states another number of events.
    #[error("the number of events is not that of the end record")]
    Count,
}

/// Error: a file is not a valid recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (byte {offset})")]
pub struct DecodeError {
    /// Offset of the record in the file, in bytes.
    pub offset: u64,
    /// What is wrong with it.
    pub problem: Problem,
}

/// Why a record cannot be read.
enum Stop {
    /// The rest of the record is missing so far.
    Incomplete,
    Invalid(Problem),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Invalid(problem)
    }
}

/// Reads a record from the bytes that are there.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Stop> {
        let end = self.at.saturating_add(n);
        let taken = self.bytes.get(self.at..end).ok_or(Stop::Incomplete)?;
        self.at = end;
        Ok(taken)
    }

    /// An unsigned LEB128 number.
    fn number(&mut self) -> Result<u64, Stop> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take(1)? else { return Err(Stop::Incomplete) };
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Problem::Number.into());
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Problem::Number.into())
    }

    fn text(&mut self) -> Result<&'a str, Stop> {
        let length = self.number()?;
        if length > MAX_TEXT_BYTES {
            return Err(Problem::Text.into());
        }
        let bytes = self.take(usize::try_from(length).map_err(|_| Problem::Text)?)?;
        std::str::from_utf8(bytes).map_err(|_| Problem::Text.into())
    }

    /// A number that is an index into a list.
    fn index_of<T: Copy>(&mut self, all: &[T]) -> Result<T, Stop> {
        let number = self.number()?;
        usize::try_from(number).ok().and_then(|at| all.get(at)).copied().ok_or(Problem::Kind.into())
    }
}

/// Reader of a recording.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Bytes of the record that is not complete.
    rest: Vec<u8>,
    offset: u64,
    origin: Option<Origin>,
    texts: Vec<Arc<str>>,
    labels: Vec<Label>,
    scratch: Vec<Scratch>,
    notes: Vec<String>,
    events: Vec<Event>,
    /// Label of each block; `None` after its free.
    blocks: Vec<Option<u32>>,
    live_bytes: u64,
    has_ended: bool,
}

impl Decoder {
    /// Takes the next bytes of the file.
    ///
    /// # Errors
    /// A record is invalid.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.rest.extend_from_slice(bytes);
        let rest = std::mem::take(&mut self.rest);
        let mut cursor = Cursor { bytes: &rest, at: 0 };
        while cursor.at < rest.len() {
            let start = cursor.at;
            match self.record(&mut cursor) {
                Ok(()) => self.offset += (cursor.at - start) as u64,
                Err(Stop::Incomplete) => {
                    self.rest = rest[start..].to_vec();
                    return Ok(());
                }
                Err(Stop::Invalid(problem)) => return Err(self.error(problem)),
            }
        }
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The file is cut off.
    pub fn finish(self) -> Result<Recording, DecodeError> {
        let cut = self.error(Problem::Cut);
        if !self.has_ended || !self.rest.is_empty() {
            return Err(cut);
        }
        let Self { origin, notes, labels, scratch, events, .. } = self;
        Ok(Recording { origin: origin.ok_or(cut)?, notes, labels, scratch, events })
    }

    const fn error(&self, problem: Problem) -> DecodeError {
        DecodeError { offset: self.offset, problem }
    }

    fn record(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        if self.origin.is_none() {
            self.origin = Some(header(cursor)?);
            return Ok(());
        }
        if self.has_ended {
            return Err(Problem::Trailing.into());
        }
        let first = cursor.number()?;
        let value = first >> 2;
        match first & 3 {
            0 => self.alloc(value),
            1 => self.free(value),
            2 => self.scratch(value, cursor),
            _ => self.control(value, cursor),
        }
    }

    fn event(&mut self, event: Event) -> Result<(), Stop> {
        if self.events.len() >= MAX_EVENTS {
            return Err(Problem::TooMany.into());
        }
        self.events.push(event);
        Ok(())
    }

    fn alloc(&mut self, label: u64) -> Result<(), Stop> {
        let index = u32::try_from(label).map_err(|_| Problem::Reference)?;
        let label = self.labels.get(index as usize).ok_or(Problem::Reference)?;
        self.live_bytes += round_up(label.bytes);
        if self.live_bytes > MAX_LIVE_BYTES {
            return Err(Problem::Size.into());
        }
        self.blocks.push(Some(index));
        self.event(Event::Alloc(index))
    }

    /// Frees a block; 0 is the one that was allocated last.
    fn free(&mut self, distance: u64) -> Result<(), Stop> {
        let distance = usize::try_from(distance).map_err(|_| Problem::Reference)?;
        let last = self.blocks.len().checked_sub(1).ok_or(Problem::Reference)?;
        let block = last.checked_sub(distance).ok_or(Problem::Reference)?;
        let label = self.blocks[block].take().ok_or(Problem::Reference)?;
        self.live_bytes -= round_up(self.labels[label as usize].bytes);
        self.event(Event::Free(u32::try_from(block).map_err(|_| Problem::TooMany)?))
    }

    fn scratch(&mut self, kind: u64, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        let n = Scratch::n_arguments(kind).ok_or(Problem::Kind)?;
        let mut arguments = [0; 5];
        for argument in arguments.iter_mut().take(n) {
            *argument = cursor.number()?;
        }
        let scratch = Scratch::new(kind, arguments).ok_or(Problem::Size)?;
        let index = u32::try_from(self.scratch.len()).map_err(|_| Problem::TooMany)?;
        // Layers repeat the scratch memory of one another.
        let known = self.scratch.iter().rev().take(16).position(|known| *known == scratch);
        let index = match known {
            Some(back) => index - 1 - u32::try_from(back).unwrap_or_default(),
            None => {
                self.scratch.push(scratch);
                index
            }
        };
        self.event(Event::Scratch(index))
    }

    fn control(&mut self, kind: u64, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        match kind {
            0 => {
                if cursor.number()? != self.events.len() as u64 {
                    return Err(Problem::Count.into());
                }
                self.has_ended = true;
                Ok(())
            }
            1 => {
                let text = cursor.text()?;
                self.texts.push(text.into());
                Ok(())
            }
            2 => {
                let label = self.label(cursor)?;
                self.labels.push(label);
                Ok(())
            }
            3 => {
                let mark = cursor.index_of(&Mark::ALL)?;
                self.event(Event::Mark(mark))
            }
            4 => self.event(Event::EmptyCache),
            5 => self.event(Event::EndOfOperation),
            6 => {
                let note = self.text_at(cursor)?;
                if self.notes.len() >= MAX_NOTES {
                    return Err(Problem::TooMany.into());
                }
                self.notes.push(note.to_string());
                Ok(())
            }
            _ => Err(Problem::Kind.into()),
        }
    }

    /// A text by its number; 0 is the empty one.
    fn text_at(&self, cursor: &mut Cursor<'_>) -> Result<Arc<str>, Stop> {
        let Some(index) = cursor.number()?.checked_sub(1) else { return Ok(Arc::from("")) };
        let text = usize::try_from(index).ok().and_then(|index| self.texts.get(index));
        text.cloned().ok_or(Problem::Reference.into())
    }

    fn label(&self, cursor: &mut Cursor<'_>) -> Result<Label, Stop> {
        let [name, module, source] = [self.text_at(cursor)?, self.text_at(cursor)?, self.text_at(cursor)?];
        let role = cursor.index_of(&TensorRole::ALL)?;
        let dtype = cursor.index_of(&DTYPES)?;
        let bytes = cursor.number()?;
        let rank = cursor.number()?;
        if bytes == 0 || bytes > MAX_TENSOR_BYTES || rank > MAX_RANK {
            return Err(Problem::Size.into());
        }
        let shape = (0..rank).map(|_| cursor.number()).collect::<Result<_, _>>()?;
        Ok(Label { name, module, source, role, dtype, bytes, shape })
    }
}

fn header(cursor: &mut Cursor<'_>) -> Result<Origin, Stop> {
    let n = MAGIC.len().min(cursor.bytes.len());
    if cursor.bytes[..n] != MAGIC[..n] {
        return Err(Problem::NotARecording.into());
    }
    cursor.take(MAGIC.len())?;
    match cursor.number()? {
        VERSION => {}
        version => return Err(Problem::Version(version).into()),
    }
    let (torch, program) = (cursor.text()?.to_owned(), cursor.text()?.to_owned());
    let mut part = || cursor.number().and_then(|n| u8::try_from(n).map_err(|_| Problem::Number.into()));
    let capability = ComputeCapability::new(part()?, part()?);
    Ok(Origin { torch, program, capability, steps: cursor.number()? })
}
