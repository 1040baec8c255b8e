//! Descriptors: attributes that are set and read. Their meaning is in `finalize.rs`.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    finalized::FinalizedDescriptor,
    table::{Attribute, AttributeOrigin, Kind, Type},
    wrong,
};

/// The values of an attribute.
#[derive(Clone, Debug)]
pub enum Values {
    /// Numbers, addresses and handles.
    Numbers(Vec<i64>),
    /// Floating-point factors.
    Factors(Vec<f64>),
    /// Snapshots of other descriptors, taken when they were set.
    Parts(Vec<Arc<Descriptor>>),
}

pub type Attributes = BTreeMap<u32, Values>;

#[derive(Clone, Debug)]
pub struct Descriptor {
    /// The type of the described object.
    pub kind: Kind,
    attributes: Attributes,
    /// The result of finalizing.
    made: Option<FinalizedDescriptor>,
}

impl Descriptor {
    /// Creates a descriptor without attributes.
    pub fn new(kind: Kind) -> Self {
        Self { kind, attributes: Attributes::new(), made: None }
    }

    /// Creates a finalized descriptor of the library's own.
    pub fn finalized(kind: Kind, made: FinalizedDescriptor, attributes: Attributes) -> Self {
        Self { kind, attributes, made: Some(made) }
    }

    /// Returns the result of finalizing, if it is finalized.
    pub fn made(&self) -> Option<&FinalizedDescriptor> {
        self.made.as_ref()
    }

    /// Checks that an attribute may be set with this type and count, and returns both.
    pub fn may(&self, attribute: &Attribute, of: i64, count: i64) -> Result<(Type, usize), u32> {
        let &Attribute { name, most, .. } = attribute;
        if self.made.is_some() {
            return Err(wrong(format_args!("{name} is set of a {:?} that is finalized", self.kind)));
        }
        if attribute.kind != self.kind || attribute.who == AttributeOrigin::Library {
            return Err(wrong(format_args!("{name} is set of a {:?}", self.kind)));
        }
        let of = Type::of(of).filter(|&of| attribute.of == of || (attribute.of, of) == (Type::Float, Type::Double));
        let of = of.ok_or_else(|| wrong(format_args!("{name} is set as another type than {:?}", attribute.of)))?;
        let given = usize::try_from(count).ok().filter(|count| (1..=most).contains(count));
        Ok((of, given.ok_or_else(|| wrong(format_args!("{name} is set with a count of {count}")))?))
    }

    /// Sets an attribute that was checked.
    pub fn set(&mut self, attribute: &Attribute, values: Values) {
        self.attributes.insert(attribute.number, values);
    }

    /// Returns an attribute of a finalized descriptor.
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
        self.attributes.get(&attribute.number).ok_or_else(|| wrong(format_args!("{name} is read but was never set")))
    }

    /// Makes the descriptor finalized, with additional attributes.
    pub fn set_finalized(&mut self, made: FinalizedDescriptor, attributes: Attributes) {
        self.attributes.extend(attributes);
        self.made = Some(made);
    }

    /// Returns whether an attribute was set.
    pub fn has(&self, attribute: u32) -> bool {
        self.attributes.contains_key(&attribute)
    }

    /// Returns an attribute's numbers; empty if it was not set.
    pub fn numbers(&self, attribute: u32) -> &[i64] {
        match self.attributes.get(&attribute) {
            Some(Values::Numbers(numbers)) => numbers,
            _ => &[],
        }
    }

    /// Returns an attribute's number; 0 if it was not set.
    pub fn number(&self, attribute: u32) -> i64 {
        self.numbers(attribute).first().copied().unwrap_or(0)
    }

    /// Returns a factor; 1 if it was not set.
    pub fn factor(&self, attribute: u32) -> f64 {
        match self.attributes.get(&attribute) {
            Some(Values::Factors(factors)) => factors[0],
            _ => 1.0,
        }
    }

    /// Returns an attribute's descriptors; empty if it was not set.
    pub fn parts(&self, attribute: u32) -> &[Arc<Self>] {
        match self.attributes.get(&attribute) {
            Some(Values::Parts(parts)) => parts,
            _ => &[],
        }
    }

    /// Returns the finalized descriptor of an attribute, and checks its kind.
    pub fn part(&self, attribute: u32, kind: Kind) -> Result<&FinalizedDescriptor, u32> {
        let part = self.parts(attribute).first().filter(|part| part.kind == kind).and_then(|part| part.made());
        part.ok_or_else(|| wrong(format_args!("a {:?} without its {kind:?}", self.kind)))
    }
}
