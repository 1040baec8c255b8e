//! Parser of PTX files. Unsupported text is an error; no instruction is guessed.

mod instruction;
mod names;

use thiserror::Error;

use crate::program::{Entry, Instruction, Operation, Parameter};
use names::Names;

/// An error while parsing a PTX file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of the PTX: {what}")]
pub struct PtxParseError {
    /// The line, counted from 1.
    pub line: u32,
    /// The error message.
    pub what: String,
}

/// Module directives without effect here. The kernels do not read the `.global` constants that the compiler emits.
const IGNORED: &[&str] = &[".version ", ".target ", ".address_size ", ".global ", ".extern .shared "];
/// Directives after a kernel's parameters that affect the driver's scheduling only.
const PLANNING: &str = ".minnctapersm ";

/// Parses all kernels of a file.
///
/// # Errors
/// The first line that is not supported.
pub fn entries(text: &str) -> Result<Vec<Entry>, PtxParseError> {
    let mut entries = Vec::new();
    let mut reading: Option<Reading> = None;
    let mut line = 0;
    for text in text.lines() {
        line += 1;
        let text = text.split("//").next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let at = |what: String| PtxParseError { line, what };
        match &mut reading {
            None => match text.strip_prefix(".visible .entry ") {
                Some(head) => reading = Some(Reading::begin(head).map_err(at)?),
                None if IGNORED.iter().any(|start| text.starts_with(start)) => {}
                None => return Err(at(format!("`{text}` is not known outside of an entry"))),
            },
            Some(entry) => {
                if entry.line(text, line).map_err(at)? {
                    entries.extend(reading.take().map(Reading::end).transpose()?);
                }
            }
        }
    }
    match reading {
        Some(_) => Err(PtxParseError { line, what: "the entry does not end".to_owned() }),
        None => Ok(entries),
    }
}

/// The parser's position in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserPosition {
    Parameters,
    BeforeBody,
    Body,
}

/// A kernel under construction.
#[derive(Debug)]
struct Reading {
    place: ParserPosition,
    entry: Entry,
    names: Names,
    /// Branches and the names of their labels, resolved at the end.
    branches: Vec<(usize, String)>,
    labels: Vec<(String, usize)>,
}

impl Reading {
    /// Starts a kernel from the text after `.entry`.
    fn begin(head: &str) -> Result<Self, String> {
        let name = head.strip_suffix('(').ok_or_else(|| format!("`{head}` has no parameters"))?;
        let entry = Entry { name: name.to_owned(), ..Entry::default() };
        let (branches, labels) = Default::default();
        Ok(Self { place: ParserPosition::Parameters, entry, names: Names::default(), branches, labels })
    }

    /// Parses a line. Returns whether it was the last.
    fn line(&mut self, text: &str, line: u32) -> Result<bool, String> {
        match self.place {
            ParserPosition::Parameters if text == ")" => self.place = ParserPosition::BeforeBody,
            ParserPosition::Parameters => self.parameter(text)?,
            ParserPosition::BeforeBody if text == "{" => self.place = ParserPosition::Body,
            ParserPosition::BeforeBody => self.directive(text)?,
            ParserPosition::Body if text == "}" => return Ok(true),
            ParserPosition::Body if text.ends_with(':') => {
                self.labels.push((text.trim_end_matches(':').to_owned(), self.entry.instructions.len()));
            }
            ParserPosition::Body => text.split_inclusive(';').try_for_each(|text| self.body(text.trim(), line))?,
        }
        Ok(false)
    }

    fn parameter(&mut self, text: &str) -> Result<(), String> {
        let mut words = text.trim_end_matches(',').split_whitespace();
        let bytes = match (words.next(), words.next()) {
            (Some(".param"), Some(".u64" | ".b64")) => 8,
            (Some(".param"), Some(".u32" | ".b32" | ".f32")) => 4,
            _ => return Err(format!("`{text}` is not a parameter that is known")),
        };
        let (Some(name), None) = (words.next(), words.next()) else { return Err(format!("`{text}` has no name")) };
        let end = self.entry.parameters.last().map_or(0, |last| last.offset + last.bytes);
        // The ISA aligns each parameter to its own size.
        let offset = end.next_multiple_of(bytes);
        self.entry.parameters.push(Parameter { name: name.to_owned(), bytes, offset });
        Ok(())
    }

    fn directive(&mut self, text: &str) -> Result<(), String> {
        if text.starts_with(PLANNING) {
            return Ok(());
        }
        let counts = text.strip_prefix(".maxntid ").ok_or_else(|| format!("`{text}` is not known before a body"))?;
        let counts: Option<Vec<u32>> = counts.split(',').map(|count| count.trim().parse().ok()).collect();
        self.entry.threads_max = Some(counts.ok_or_else(|| format!("`{text}` has no counts"))?.iter().product());
        Ok(())
    }

    fn body(&mut self, text: &str, line: u32) -> Result<(), String> {
        let text = text.strip_suffix(';').ok_or_else(|| format!("`{text}` does not end"))?;
        if let Some(registers) = text.strip_prefix(".reg ") {
            return self.names.declare(registers, &mut self.entry);
        }
        let (guard, text) = match text.strip_prefix('@') {
            Some(guarded) => {
                let (guard, rest) = guarded.split_once(char::is_whitespace).ok_or("a guard has no instruction")?;
                (Some(self.names.guard(guard)?), rest.trim())
            }
            None => (None, text),
        };
        let (opcode, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let operation = if matches!(opcode, "bra" | "bra.uni") {
            self.branches.push((self.entry.instructions.len(), operands.trim().to_owned()));
            Operation::Branch(0)
        } else {
            instruction::operation(opcode, operands, &mut self.names, &mut self.entry)?
        };
        self.entry.instructions.push(Instruction { line, guard, operation });
        Ok(())
    }

    /// Resolves branches and returns the kernel.
    fn end(mut self) -> Result<Entry, PtxParseError> {
        for (branch, label) in &self.branches {
            let target = self.labels.iter().find(|(name, _)| name == label).map(|(_, place)| *place);
            let branch = &mut self.entry.instructions[*branch];
            let line = branch.line;
            let target = target.ok_or_else(|| PtxParseError { line, what: format!("there is no label {label}") })?;
            branch.operation = Operation::Branch(target);
        }
        Ok(self.entry)
    }
}

/// Splits operands at commas outside braces and brackets.
fn operands(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let split = text.split(move |letter: char| {
        match letter {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    });
    split.map(str::trim).filter(|operand| !operand.is_empty()).collect()
}
