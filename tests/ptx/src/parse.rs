//! Reads a file of PTX. Whatever is not known to the last word is an error: no instruction is guessed at.

mod instruction;
mod names;

use thiserror::Error;

use crate::program::{Entry, Instruction, Operation, Parameter};
use names::Names;

/// Why a file cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of the PTX: {what}")]
pub struct Unreadable {
    /// The line, counted from 1.
    pub line: u32,
    /// What is wrong with it.
    pub what: String,
}

/// Directives of a module that change nothing here. Kernels read none of the `.global` constants that the compiler
/// leaves.
const IGNORED: &[&str] = &[".version ", ".target ", ".address_size ", ".global ", ".extern .shared "];
/// Directives behind an entry's parameters that a driver plans by.
const PLANNING: &str = ".minnctapersm ";

/// Reads all entries of a file.
///
/// # Errors
/// What is not known.
pub fn entries(text: &str) -> Result<Vec<Entry>, Unreadable> {
    let mut entries = Vec::new();
    let mut reading: Option<Reading> = None;
    let mut line = 0;
    for text in text.lines() {
        line += 1;
        let text = text.split("//").next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let at = |what: String| Unreadable { line, what };
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
        Some(_) => Err(Unreadable { line, what: "the entry does not end".to_owned() }),
        None => Ok(entries),
    }
}

/// Where in an entry the reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Parameters,
    BeforeBody,
    Body,
}

/// An entry that is being read.
#[derive(Debug)]
struct Reading {
    place: Place,
    entry: Entry,
    names: Names,
    /// Branches and the labels that they name, to be found at the end.
    branches: Vec<(usize, String)>,
    labels: Vec<(String, usize)>,
}

impl Reading {
    /// From what stands behind `.entry`.
    fn begin(head: &str) -> Result<Self, String> {
        let name = head.strip_suffix('(').ok_or_else(|| format!("`{head}` has no parameters"))?;
        let entry = Entry { name: name.to_owned(), ..Entry::default() };
        let (branches, labels) = Default::default();
        Ok(Self { place: Place::Parameters, entry, names: Names::default(), branches, labels })
    }

    /// Reads a line; whether it was the last.
    fn line(&mut self, text: &str, line: u32) -> Result<bool, String> {
        match self.place {
            Place::Parameters if text == ")" => self.place = Place::BeforeBody,
            Place::Parameters => self.parameter(text)?,
            Place::BeforeBody if text == "{" => self.place = Place::Body,
            Place::BeforeBody => self.directive(text)?,
            Place::Body if text == "}" => return Ok(true),
            Place::Body => self.body(text, line)?,
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
        // The ISA aligns each to its own size.
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
        if let Some(label) = text.strip_suffix(':') {
            self.labels.push((label.to_owned(), self.entry.instructions.len()));
            return Ok(());
        }
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

    /// The whole entry.
    fn end(mut self) -> Result<Entry, Unreadable> {
        for (branch, label) in &self.branches {
            let target = self.labels.iter().find(|(name, _)| name == label).map(|(_, place)| *place);
            let branch = &mut self.entry.instructions[*branch];
            let line = branch.line;
            let target = target.ok_or_else(|| Unreadable { line, what: format!("there is no label {label}") })?;
            branch.operation = Operation::Branch(target);
        }
        Ok(self.entry)
    }
}

/// Takes operands apart, at commas outside of braces and brackets.
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
