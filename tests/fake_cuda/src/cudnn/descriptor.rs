//! Descriptors: attributes as they are set and read. What they come to is in `made.rs`.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    made::{self, Around, Made},
    table::{self, Attribute, Kind, Type, Who},
    wrong,
};
use crate::state::Answer;

/// What an attribute is.
#[derive(Clone, Debug)]
pub enum Values {
    /// Numbers, addresses and handles.
    Numbers(Vec<i64>),
    /// Factors.
    Factors(Vec<f64>),
    /// Other descriptors, as they were when they were set.
    Parts(Vec<Arc<Descriptor>>),
}

/// Attributes by their numbers.
pub type Attributes = BTreeMap<u32, Values>;

/// A descriptor.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// What it describes.
    pub kind: Kind,
    attributes: Attributes,
    /// Once it is finalized.
    made: Option<Made>,
}

impl Descriptor {
    /// One without attributes.
    pub fn new(kind: Kind) -> Self {
        Self { kind, attributes: Attributes::new(), made: None }
    }

    /// One that the library gives.
    pub fn finalized(kind: Kind, made: Made, attributes: Attributes) -> Self {
        Self { kind, attributes, made: Some(made) }
    }

    /// What it is, once it is finalized.
    pub fn made(&self) -> Option<&Made> {
        self.made.as_ref()
    }

    /// Whether so many of that type may be set: gives both.
    pub fn may(&self, attribute: &Attribute, of: i64, count: i64) -> Result<(Type, usize), u32> {
        let &Attribute { name, most, .. } = attribute;
        if self.made.is_some() {
            return Err(wrong(format_args!("{name} is set of a {:?} that is finalized", self.kind)));
        }
        if attribute.kind != self.kind || attribute.who == Who::Library {
            return Err(wrong(format_args!("{name} is set of a {:?}", self.kind)));
        }
        let of = Type::of(of).filter(|&of| attribute.of == of || (attribute.of, of) == (Type::Float, Type::Double));
        let of = of.ok_or_else(|| wrong(format_args!("{name} is set as another type than {:?}", attribute.of)))?;
        let given = usize::try_from(count).ok().filter(|count| (1..=most).contains(count));
        Ok((of, given.ok_or_else(|| wrong(format_args!("{name} is set with a count of {count}")))?))
    }

    /// Sets what may be set.
    pub fn set(&mut self, attribute: &Attribute, values: Values) {
        self.attributes.insert(attribute.number, values);
    }

    /// An attribute of a finalized descriptor.
    pub fn get(&self, attribute: &Attribute, of: i64) -> Result<&Values, u32> {
        let name = attribute.name;
        if self.made.is_none() {
            return Err(wrong(format_args!("{name} is read of a {:?} that is not finalized", self.kind)));
        }
        if attribute.kind != self.kind {
            return Err(wrong(format_args!("{name} is read of a {:?}", self.kind)));
        }
        if Type::of(of) != Some(attribute.of) {
            return Err(wrong(format_args!("{name} is read as another type than {:?}", attribute.of)));
        }
        self.attributes.get(&attribute.number).ok_or_else(|| wrong(format_args!("{name} is read and was never set")))
    }

    /// Makes it what its attributes say.
    pub fn finalize(&mut self, around: &Around<'_>) -> Answer {
        if self.made.is_some() {
            return Err(wrong(format_args!("a {:?} is finalized twice", self.kind)));
        }
        let of_kind = table::ATTRIBUTES.iter().filter(|attribute| attribute.kind == self.kind);
        for attribute in of_kind.filter(|attribute| attribute.who == Who::Host) {
            if !self.has(attribute.number) {
                return Err(wrong(format_args!("a {:?} is finalized without {}", self.kind, attribute.name)));
            }
        }
        let (made, told) = made::made(self, around)?;
        self.attributes.extend(told);
        self.made = Some(made);
        Ok(())
    }

    /// Whether an attribute was set.
    pub fn has(&self, attribute: u32) -> bool {
        self.attributes.contains_key(&attribute)
    }

    /// An attribute's numbers; none where it was not set.
    pub fn numbers(&self, attribute: u32) -> &[i64] {
        match self.attributes.get(&attribute) {
            Some(Values::Numbers(numbers)) => numbers,
            _ => &[],
        }
    }

    /// An attribute's number; 0 where it was not set.
    pub fn number(&self, attribute: u32) -> i64 {
        self.numbers(attribute).first().copied().unwrap_or(0)
    }

    /// A factor; 1 where it was not set.
    pub fn factor(&self, attribute: u32) -> f64 {
        match self.attributes.get(&attribute) {
            Some(Values::Factors(factors)) => factors[0],
            _ => 1.0,
        }
    }

    /// An attribute's descriptors; none where it was not set.
    pub fn parts(&self, attribute: u32) -> &[Arc<Self>] {
        match self.attributes.get(&attribute) {
            Some(Values::Parts(parts)) => parts,
            _ => &[],
        }
    }

    /// What an attribute's descriptor is, where it is of that kind.
    pub fn part(&self, attribute: u32, kind: Kind) -> Result<&Made, u32> {
        let part = self.parts(attribute).first().filter(|part| part.kind == kind).and_then(|part| part.made());
        part.ok_or_else(|| wrong(format_args!("a {:?} without its {kind:?}", self.kind)))
    }
}
