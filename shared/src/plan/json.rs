//! A plan as JSON, schema 1: what `headroom plan --json` prints and the page exports. Other programs rely on the names.
//!
//! Put together by hand: code that is derived for each struct is eleven kilobytes of the page's program.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Oom, Plan, builtin};
use crate::{advice::Advice, gpt::tensors::Category, text::Table};

/// The schema's number.
pub const SCHEMA: u32 = 1;

/// A document, or a part of one, whose names are printed in their own order.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A value.
    Value(Value),
    /// Names and what they stand for.
    Object(Object),
    /// Several in a row.
    List(Vec<Self>),
}

/// Names and what they stand for.
pub type Object = Vec<(&'static str, Node)>;

impl Node {
    /// As a value of the library's, which orders names by their letters.
    #[must_use]
    pub fn into_value(self) -> Value {
        match self {
            Self::Value(value) => value,
            Self::List(nodes) => Value::Array(nodes.into_iter().map(Self::into_value).collect()),
            Self::Object(entries) => {
                let mut map = Map::new();
                for (name, node) in entries {
                    map.insert(name.to_owned(), node.into_value());
                }
                Value::Object(map)
            }
        }
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::List(nodes) => serializer.collect_seq(nodes),
            Self::Object(entries) => serializer.collect_map(entries.iter().map(|(name, node)| (name, node))),
        }
    }
}

/// A size or a count.
pub(super) fn number(number: impl Into<Value>) -> Node {
    Node::Value(number.into())
}

/// Words; [`Node::Value`] of nothing where there are none.
pub(super) fn words(words: Option<&str>) -> Node {
    Node::Value(words.map_or(Value::Null, Value::from))
}

impl Plan {
    /// The plan as a document; `config` holds nanoGPT's keys after overrides, `table` says the fixes' notes.
    #[must_use]
    pub fn document(&self, config: &Map<String, Value>, advice: &Advice, table: &Table) -> Node {
        let (device, peak, basis) = (&self.request.device, &self.peak, &self.basis);
        let by_category = Category::ALL.iter().zip(peak.by_category);
        let by_category = by_category.map(|(category, bytes)| (category.name(), number(bytes))).collect();
        let phases = self.phases.iter().map(|peak| {
            Node::Object(vec![
                ("name", words(Some(peak.phase.name()))),
                ("live_bytes_peak", number(peak.live_bytes)),
                ("max_memory_allocated", number(peak.max_allocated_bytes)),
                ("max_memory_reserved", number(peak.max_reserved_bytes)),
            ])
        });
        let device = vec![
            ("name", words(Some(&device.name))),
            ("total_bytes", number(device.total_bytes)),
            ("compute_capability", words(Some(&device.compute_capability.to_string()))),
        ];
        let peak = vec![
            ("phase", words(Some(peak.phase.name()))),
            ("live_bytes", number(peak.live_bytes)),
            ("max_memory_allocated", number(peak.max_allocated_bytes)),
            ("max_memory_reserved", number(peak.max_reserved_bytes)),
            ("device_used_bytes", number(peak.device_used_bytes)),
            // By their letters, as ever.
            ("by_category", Node::Value(Node::Object(by_category).into_value())),
        ];
        let basis = vec![
            ("allocated", words(Some(basis.allocated.name()))),
            ("reserved", words(Some(basis.reserved.name()))),
            ("context", words(Some(basis.context.name()))),
            ("band_bytes", Node::List(basis.band_bytes.map(number).into())),
        ];
        let sizes = &advice.batch_sizes;
        let batch_size = vec![
            ("largest", sizes.largest.map_or_else(|| words(None), number)),
            ("may_fit", Node::List(sizes.may_fit.iter().map(|size| number(*size)).collect())),
        ];
        Node::Object(vec![
            ("schema", number(SCHEMA)),
            ("config", Node::Value(Value::Object(config.clone()))),
            ("device", Node::Object(device)),
            ("fits", number(self.fits)),
            ("headroom_bytes", number(self.headroom_bytes)),
            ("phases", Node::List(phases.collect())),
            ("peak", Node::Object(peak)),
            ("oom", self.oom.as_ref().map_or_else(|| words(None), Oom::node)),
            ("basis", Node::Object(basis)),
            ("builtin", builtin::node(&self.request, table)),
            ("batch_size", Node::Object(batch_size)),
            ("fixes", Node::List(advice.fixes.iter().map(|fix| Node::Value(fix.json(table))).collect())),
        ])
    }
}

impl Oom {
    fn node(&self) -> Node {
        Node::Object(vec![
            ("phase", words(Some(self.phase.name()))),
            ("tensor", words(Some(&self.tensor))),
            ("shape", Node::List(self.shape.iter().map(|&axis| number(axis)).collect())),
            ("dtype", words(Some(self.dtype.name()))),
            ("requested_bytes", number(self.requested_bytes)),
            ("allocated_bytes", number(self.allocated_bytes)),
            ("message", words(Some(&self.message))),
        ])
    }
}
