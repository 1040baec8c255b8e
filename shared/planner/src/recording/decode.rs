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

use super::{
    Event, Label, MAGIC, MAX_LIVE_BYTES, Mark, Origin, Recording, Scratch, Series, TensorRole, VERSION, Variable,
    series::{MAX_DEGREE, MAX_SIZE, MAX_SIZES, Quantity},
};

/// Maximum length of a text in bytes.
const MAX_TEXT_BYTES: u64 = 4096;
/// Maximum number of axes of a tensor.
const MAX_RANK: u64 = 16;
/// Maximum number of events.
const MAX_EVENTS: usize = 1 << 24;
/// Maximum number of notes.
const MAX_NOTES: usize = 64;
/// Dtypes by their number in a file.
pub(super) const DTYPES: [Dtype; 11] = [
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

/// Kinds of records: the low two bits of their first number.
pub(super) mod kind {
    pub const ALLOC: u64 = 0;
    pub const FREE: u64 = 1;
    pub const SCRATCH: u64 = 2;
    pub const CONTROL: u64 = 3;
}

/// Values of control records.
pub(super) mod control {
    pub const END: u64 = 0;
    pub const TEXT: u64 = 1;
    pub const LABEL: u64 = 2;
    pub const MARK: u64 = 3;
    pub const EMPTY_CACHE: u64 = 4;
    pub const END_OF_OPERATION: u64 = 5;
    pub const NOTE: u64 = 6;
    pub const SERIES: u64 = 7;
    pub const LABEL_OF_SERIES: u64 = 8;
    pub const SCRATCH_OF_SERIES: u64 = 9;
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The first bytes are others.
    #[error("it is not a recording of Headroom")]
    NotARecording,
    /// A newer program wrote the file.
    #[error("it has version {0} of the format, and this program reads versions up to {VERSION}")]
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
    /// The sizes of a series are not ascending, or a number has more values than them.
    #[error("the sizes of a series are invalid")]
    Series,
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
    version: u64,
    series: Option<Series>,
    /// Numbers of each scratch memory in the series; empty if they are the same at all sizes.
    scratch_of_series: Vec<Vec<Quantity>>,
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
        let Self { origin, notes, labels, scratch, events, mut series, scratch_of_series, .. } = self;
        if let Some(series) = &mut series {
            let numbered = (0_u32..).zip(scratch_of_series);
            series.scratch = numbered.filter(|(_, quantities)| !quantities.is_empty()).collect();
        }
        let size = series.as_ref().map_or(0, |series| series.sizes[0]);
        Ok(Recording { origin: origin.ok_or(cut)?, notes, labels, scratch, events, series, size })
    }

    const fn error(&self, problem: Problem) -> DecodeError {
        DecodeError { offset: self.offset, problem }
    }

    fn record(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        if self.origin.is_none() {
            let (version, origin) = header(cursor)?;
            self.version = version;
            self.origin = Some(origin);
            return Ok(());
        }
        if self.has_ended {
            return Err(Problem::Trailing.into());
        }
        let first = cursor.number()?;
        let value = first >> 2;
        match first & 3 {
            kind::ALLOC => self.alloc(value),
            kind::FREE => self.free(value),
            kind::SCRATCH => self.scratch(value, cursor),
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
        self.add_scratch(scratch, Vec::new())
    }

    fn scratch_of_series(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        let kind = cursor.number()?;
        let n = Scratch::n_arguments(kind).ok_or(Problem::Kind)?;
        let quantities = (0..n).map(|_| self.quantity(cursor)).collect::<Result<Vec<_>, _>>()?;
        let mut arguments = [0; 5];
        for (argument, quantity) in arguments.iter_mut().zip(&quantities) {
            *argument = quantity.first();
        }
        let scratch = Scratch::new(kind, arguments).ok_or(Problem::Size)?;
        self.add_scratch(scratch, quantities)
    }

    fn add_scratch(&mut self, scratch: Scratch, quantities: Vec<Quantity>) -> Result<(), Stop> {
        let index = u32::try_from(self.scratch.len()).map_err(|_| Problem::TooMany)?;
        // Layers repeat the scratch memory of one another.
        let last = self.scratch.iter().zip(&self.scratch_of_series).rev().take(16);
        let known = { last }.position(|known| known == (&scratch, &quantities));
        let index = match known {
            Some(back) => index - 1 - u32::try_from(back).unwrap_or_default(),
            None => {
                self.scratch.push(scratch);
                self.scratch_of_series.push(quantities);
                index
            }
        };
        self.event(Event::Scratch(index))
    }

    /// A number of a series: its values at the first sizes.
    fn quantity(&self, cursor: &mut Cursor<'_>) -> Result<Quantity, Stop> {
        let n_sizes = self.series.as_ref().ok_or(Problem::Kind)?.sizes.len();
        let n = cursor.number()?;
        let n = usize::try_from(n).ok().filter(|n| (1..=n_sizes.min(MAX_DEGREE + 1)).contains(n));
        let values = (0..n.ok_or(Problem::Series)?).map(|_| cursor.number()).collect::<Result<_, _>>()?;
        Ok(Quantity(values))
    }

    /// The sizes of a series, before all labels and events.
    fn sizes(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        if self.version < 2 || self.series.is_some() || !self.labels.is_empty() || !self.events.is_empty() {
            return Err(Problem::Kind.into());
        }
        let variable = cursor.index_of(&Variable::ALL)?;
        let n = cursor.number()?;
        let n = usize::try_from(n).ok().filter(|n| (2..=MAX_SIZES).contains(n)).ok_or(Problem::Series)?;
        let sizes = (0..n).map(|_| cursor.number()).collect::<Result<Vec<_>, _>>()?;
        if sizes[0] == 0 || sizes[n - 1] > MAX_SIZE || sizes.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Problem::Series.into());
        }
        self.series = Some(Series { variable, sizes, labels: Vec::new(), scratch: Vec::new() });
        Ok(())
    }

    fn control(&mut self, kind: u64, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        match kind {
            control::END => {
                if cursor.number()? != self.events.len() as u64 {
                    return Err(Problem::Count.into());
                }
                self.has_ended = true;
                Ok(())
            }
            control::TEXT => {
                let text = cursor.text()?;
                self.texts.push(text.into());
                Ok(())
            }
            control::LABEL => self.label(cursor, false),
            control::MARK => {
                let mark = cursor.index_of(&Mark::ALL)?;
                self.event(Event::Mark(mark))
            }
            control::EMPTY_CACHE => self.event(Event::EmptyCache),
            control::END_OF_OPERATION => self.event(Event::EndOfOperation),
            control::NOTE => {
                let note = self.text_at(cursor)?;
                if self.notes.len() >= MAX_NOTES {
                    return Err(Problem::TooMany.into());
                }
                self.notes.push(note.to_string());
                Ok(())
            }
            control::SERIES => self.sizes(cursor),
            control::LABEL_OF_SERIES => self.label(cursor, true),
            control::SCRATCH_OF_SERIES => self.scratch_of_series(cursor),
            _ => Err(Problem::Kind.into()),
        }
    }

    /// A text by its number; 0 is the empty one.
    fn text_at(&self, cursor: &mut Cursor<'_>) -> Result<Arc<str>, Stop> {
        let Some(index) = cursor.number()?.checked_sub(1) else { return Ok(Arc::from("")) };
        let text = usize::try_from(index).ok().and_then(|index| self.texts.get(index));
        text.cloned().ok_or(Problem::Reference.into())
    }

    fn label(&mut self, cursor: &mut Cursor<'_>, is_of_series: bool) -> Result<(), Stop> {
        let [name, module, source] = [self.text_at(cursor)?, self.text_at(cursor)?, self.text_at(cursor)?];
        let role = cursor.index_of(&TensorRole::ALL)?;
        let dtype = cursor.index_of(&DTYPES)?;
        let read = |cursor: &mut Cursor<'_>| match is_of_series {
            true => self.quantity(cursor),
            false => Ok(Quantity(vec![cursor.number()?])),
        };
        let bytes_of_series = read(cursor)?;
        let rank = cursor.number()?;
        let bytes = bytes_of_series.first();
        if bytes == 0 || bytes > MAX_TENSOR_BYTES || rank > MAX_RANK {
            return Err(Problem::Size.into());
        }
        let mut quantities = vec![bytes_of_series];
        for _ in 0..rank {
            quantities.push(read(cursor)?);
        }
        let shape = quantities[1..].iter().map(Quantity::first).collect();
        let index = u32::try_from(self.labels.len()).map_err(|_| Problem::TooMany)?;
        self.labels.push(Label { name, module, source, role, dtype, bytes, shape });
        if let Some(series) = self.series.as_mut().filter(|_| is_of_series) {
            series.labels.push((index, quantities));
        }
        Ok(())
    }
}

/// Version and origin.
fn header(cursor: &mut Cursor<'_>) -> Result<(u64, Origin), Stop> {
    let n = MAGIC.len().min(cursor.bytes.len());
    if cursor.bytes[..n] != MAGIC[..n] {
        return Err(Problem::NotARecording.into());
    }
    cursor.take(MAGIC.len())?;
    let version = cursor.number()?;
    if version == 0 || version > VERSION {
        return Err(Problem::Version(version).into());
    }
    let (torch, program) = (cursor.text()?.to_owned(), cursor.text()?.to_owned());
    let mut part = || cursor.number().and_then(|n| u8::try_from(n).map_err(|_| Problem::Number.into()));
    let capability = ComputeCapability::new(part()?, part()?);
    Ok((version, Origin { torch, program, capability, steps: cursor.number()? }))
}
