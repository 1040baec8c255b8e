//! Writes a recording to bytes that [`super::Decoder`] reads.

use std::{collections::HashMap, sync::Arc};

use super::{
    Event, MAGIC, Mark, Origin, Recording, Scratch, TensorRole, VERSION,
    decode::{DTYPES, control, kind},
    series::{Quantity, Series, Variable},
};

struct Encoder<'a> {
    recording: &'a Recording,
    bytes: Vec<u8>,
    /// Number of each text; 0 is the empty one.
    texts: HashMap<Arc<str>, u64>,
    /// Polynomials of labels and scratch memory by their index.
    labels: HashMap<u32, &'a [Quantity]>,
    scratch: HashMap<u32, &'a [Quantity]>,
    /// Number of labels that are written. They are written in their order.
    n_labels: u32,
    n_blocks: u64,
}

/// Index of a value in the list of all values, which is its number in a file.
fn position<T: PartialEq>(all: &[T], value: &T) -> u64 {
    all.iter().position(|other| other == value).unwrap_or_default() as u64
}

fn by_index(all: &[(u32, Vec<Quantity>)]) -> HashMap<u32, &[Quantity]> {
    all.iter().map(|(index, quantities)| (*index, quantities.as_slice())).collect()
}

impl Encoder<'_> {
    fn number(&mut self, number: u64) {
        let mut rest = number;
        while rest > 0x7f {
            self.bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push((rest & 0x7f) as u8);
    }

    fn record(&mut self, kind: u64, value: u64) {
        self.number(value << 2 | kind);
    }

    fn control(&mut self, control: u64) {
        self.record(kind::CONTROL, control);
    }

    fn raw_text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Number of a text, which is written at its first use.
    fn text(&mut self, text: &Arc<str>) -> u64 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&number) = self.texts.get(text) {
            return number;
        }
        self.control(control::TEXT);
        self.raw_text(text);
        let number = self.texts.len() as u64 + 1;
        self.texts.insert(Arc::clone(text), number);
        number
    }

    fn header(&mut self) {
        let Origin { torch, program, capability, steps } = &self.recording.origin;
        self.bytes.extend_from_slice(MAGIC);
        self.number(VERSION);
        self.raw_text(torch);
        self.raw_text(program);
        self.number(capability.major.into());
        self.number(capability.minor.into());
        self.number(*steps);
        if let Some(Series { variable, sizes, .. }) = &self.recording.series {
            self.control(control::SERIES);
            self.number(position(&Variable::ALL, variable));
            self.number(sizes.len() as u64);
            sizes.iter().for_each(|size| self.number(*size));
        }
    }

    fn quantity(&mut self, Quantity(values): &Quantity) {
        self.number(values.len() as u64);
        values.iter().for_each(|value| self.number(*value));
    }

    fn label(&mut self, index: u32) {
        let label = &self.recording.labels[index as usize];
        let texts = [&label.name, &label.module, &label.source].map(|text| self.text(text));
        let quantities = self.labels.get(&index).copied();
        self.control(if quantities.is_some() { control::LABEL_OF_SERIES } else { control::LABEL });
        texts.into_iter().for_each(|text| self.number(text));
        self.number(position(&TensorRole::ALL, &label.role));
        self.number(position(&DTYPES, &label.dtype));
        match quantities {
            Some([bytes, shape @ ..]) => {
                self.quantity(bytes);
                self.number(shape.len() as u64);
                shape.iter().for_each(|axis| self.quantity(axis));
            }
            _ => {
                self.number(label.bytes);
                self.number(label.shape.len() as u64);
                label.shape.iter().for_each(|axis| self.number(*axis));
            }
        }
    }

    fn scratch(&mut self, index: u32) {
        let scratch: Scratch = self.recording.scratch[index as usize];
        match self.scratch.get(&index).copied() {
            Some(quantities) => {
                self.control(control::SCRATCH_OF_SERIES);
                self.number(scratch.kind());
                quantities.iter().for_each(|quantity| self.quantity(quantity));
            }
            None => {
                self.record(kind::SCRATCH, scratch.kind());
                scratch.arguments().iter().for_each(|argument| self.number(*argument));
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Alloc(label) => {
                while self.n_labels <= label {
                    self.label(self.n_labels);
                    self.n_labels += 1;
                }
                self.record(kind::ALLOC, label.into());
                self.n_blocks += 1;
            }
            Event::Free(block) => self.record(kind::FREE, self.n_blocks - 1 - u64::from(block)),
            Event::Scratch(index) => self.scratch(index),
            Event::EndOfOperation => self.control(control::END_OF_OPERATION),
            Event::Mark(mark) => {
                self.control(control::MARK);
                self.number(position(&Mark::ALL, &mark));
            }
            Event::EmptyCache => self.control(control::EMPTY_CACHE),
        }
    }
}

impl Recording {
    /// The recording as a file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder {
            recording: self,
            bytes: Vec::new(),
            texts: HashMap::new(),
            labels: self.series.as_ref().map(|series| by_index(&series.labels)).unwrap_or_default(),
            scratch: self.series.as_ref().map(|series| by_index(&series.scratch)).unwrap_or_default(),
            n_labels: 0,
            n_blocks: 0,
        };
        encoder.header();
        for note in &self.notes {
            let number = encoder.text(&note.as_str().into());
            encoder.control(control::NOTE);
            encoder.number(number);
        }
        self.events.iter().for_each(|event| encoder.event(*event));
        encoder.control(control::END);
        encoder.number(self.events.len() as u64);
        encoder.bytes
    }
}
