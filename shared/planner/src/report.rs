//! A plan as JSON, schema 1: the output of `headroom plan --json` and the page's export. Other programs depend on the
//! names.
//!
//! Written by hand: derived serialisation of each struct would add eleven kilobytes to the page's WebAssembly.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{
    advice::{Advice, CodeChange},
    gpt::{buffers::cuda::RESERVE_BYTES, tensors::Category},
    plan::{Oom, Plan, builtin::builtin},
    recording::{Origin, ReplayRequest, SizeOfRun},
    request::{Request, RunOnMachine},
    session::RunConfig,
    trainers::{TrainerRequest, fixes::TrainerAdvice},
};
use headroom_text::{Table, Text};

/// Version of the schema.
pub const SCHEMA: u32 = 1;

/// Number of tensors in the document of a replay.
const MAX_TENSORS: usize = 64;

/// A JSON value whose object keys retain their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A serde_json value.
    Value(Value),
    /// An object.
    Object(Object),
    /// An array.
    List(Vec<Self>),
}

/// Object entries in order.
pub type Object = Vec<(&'static str, Node)>;

impl Node {
    /// Converts to a `serde_json` value, which sorts object keys.
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

/// Number node.
pub(crate) fn number(number: impl Into<Value>) -> Node {
    Node::Value(number.into())
}

/// String node; null for `None`.
pub(crate) fn words(words: Option<&str>) -> Node {
    Node::Value(words.map_or(Value::Null, Value::from))
}

/// The parts of a document that are the same for every trainer.
struct MemoryFields {
    device: Node,
    phases: Node,
    peak: Node,
    oom: Node,
    basis: Node,
}

impl<R: RunOnMachine> Plan<R> {
    fn memory_fields(&self) -> MemoryFields {
        let (device, peak, basis) = (&self.request.machine().device, &self.peak, &self.basis);
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
            // This object's keys are sorted, for compatibility.
            ("by_category", Node::Value(Node::Object(by_category).into_value())),
        ];
        let basis = vec![
            ("allocated", words(Some(basis.allocated.name()))),
            ("reserved", words(Some(basis.reserved.name()))),
            ("context", words(Some(basis.context.name()))),
            ("band_bytes", Node::List(basis.band_bytes.map(number).into())),
        ];
        MemoryFields {
            device: Node::Object(device),
            phases: Node::List(phases.collect()),
            peak: Node::Object(peak),
            oom: self.oom.as_ref().map_or_else(|| words(None), Oom::node),
            basis: Node::Object(basis),
        }
    }
}

impl Plan<TrainerRequest> {
    /// The plan as a document. `link` opens it in the page.
    #[must_use]
    pub fn trainer_document(&self, advice: &TrainerAdvice, link: &str) -> Node {
        let MemoryFields { device, phases, peak, oom, basis } = self.memory_fields();
        let fit = advice.largest.iter().map(|(knob, value)| (knob.key, value.map_or_else(|| words(None), number)));
        let remarks =
            self.request.run().remarks().into_iter().map(|remark| words(Some(&Text::from(remark).to_string())));
        let obstacle = advice.obstacle.iter().map(Text::to_string).collect::<Vec<_>>().join(" ");
        Node::Object(vec![
            ("schema", number(SCHEMA)),
            ("trainer", words(Some(self.request.run().trainer()))),
            ("config", Node::Value(Value::Object(self.request.run().config()))),
            ("device", device),
            ("fits", number(self.fits)),
            ("headroom_bytes", number(self.headroom_bytes)),
            ("phases", phases),
            ("peak", peak),
            ("oom", oom),
            ("basis", basis),
            ("largest", Node::Object(fit.collect())),
            ("fixes", Node::List(advice.fixes.iter().map(|fix| Node::Value(fix.json())).collect())),
            ("obstacle", words((!obstacle.is_empty()).then_some(&*obstacle))),
            ("remarks", Node::List(remarks.collect())),
            ("link", words(Some(link))),
        ])
    }
}

impl Plan<ReplayRequest> {
    /// The replay of a recording as a document.
    #[must_use]
    pub fn replay_document(&self) -> Node {
        let MemoryFields { device, phases, peak, oom, basis } = self.memory_fields();
        let recording = self.request.origin.as_ref().map(|Origin { torch, program, capability, steps }| {
            Node::Object(vec![
                ("program", words(Some(program))),
                ("torch", words(Some(torch))),
                ("compute_capability", words(Some(&capability.to_string()))),
                ("steps", number(*steps)),
            ])
        });
        let tensors = self.largest_at_peak().into_iter().take(MAX_TENSORS).map(|group| {
            Node::Object(vec![
                ("tensor", words(Some(&group.tensor.stored.name_in(None)))),
                ("module", words(Some(&group.tensor.stored.module_in(None)))),
                ("source", words(Some(group.tensor.stored.source()).filter(|source| !source.is_empty()))),
                ("category", words(Some(group.tensor.category().name()))),
                ("shape", Node::List(group.tensor.shape.iter().map(|&axis| number(axis)).collect())),
                ("dtype", words(Some(group.tensor.dtype.name()))),
                ("count", number(group.count)),
                ("bytes", number(group.bytes)),
            ])
        });
        let size = self.request.size.as_ref().map(|SizeOfRun { variable, size, recorded, .. }| {
            Node::Object(vec![
                ("variable", words(Some(variable.key()))),
                ("size", number(*size)),
                ("recorded", Node::List(recorded.iter().map(|&size| number(size)).collect())),
            ])
        });
        let remarks = self.request.remarks();
        Node::Object(vec![
            ("schema", number(SCHEMA)),
            ("recording", recording.unwrap_or_else(|| words(None))),
            ("series", size.unwrap_or_else(|| words(None))),
            ("device", device),
            ("fits", number(self.fits)),
            ("headroom_bytes", number(self.headroom_bytes)),
            ("phases", phases),
            ("peak", peak),
            ("oom", oom),
            ("oom_source", words(self.failing_source().as_deref())),
            ("basis", basis),
            ("tensors", Node::List(tensors.collect())),
            ("remarks", Node::List(remarks.iter().map(|remark| words(Some(&remark.to_string()))).collect())),
        ])
    }
}

impl Plan {
    /// The plan as a document. `config` holds nanoGPT's keys after overrides; `table` translates the fixes' notes.
    #[must_use]
    pub fn document(&self, config: &RunConfig, advice: &Advice, table: &Table) -> Node {
        let MemoryFields { device, phases, peak, oom, basis } = self.memory_fields();
        let sizes = &advice.batch_sizes;
        let batch_size = vec![
            ("largest", sizes.largest.map_or_else(|| words(None), number)),
            ("may_fit", Node::List(sizes.may_fit.iter().map(|size| number(*size)).collect())),
        ];
        Node::Object(vec![
            ("schema", number(SCHEMA)),
            ("config", Node::Value(config.iter().map(|(key, value)| (key.to_owned(), value.to_json())).collect())),
            ("device", device),
            ("fits", number(self.fits)),
            ("headroom_bytes", number(self.headroom_bytes)),
            ("needs", self.needs(config)),
            ("phases", phases),
            ("peak", peak),
            ("oom", oom),
            ("basis", basis),
            ("builtin", builtin_node(&self.request, table)),
            ("batch_size", Node::Object(batch_size)),
            ("fixes", Node::List(advice.fixes.iter().map(|fix| Node::Value(fix.json(table))).collect())),
        ])
    }
}

/// The `builtin` object of `headroom plan --json`. If the run is not supported, figures are null. `table` translates
/// the reason.
pub(crate) fn builtin_node(request: &Request, table: &Table) -> Node {
    let (builtin, reason) = match builtin(request) {
        Ok(builtin) => (Some(builtin), None),
        Err(reason) => (None, Some(table.say(&reason))),
    };
    let known = builtin.as_ref();
    let levels = known.map_or(&[][..], |known| &known.recompute);
    Node::Object(vec![
        ("supported", number(known.is_some())),
        ("reason", words(reason.as_deref())),
        ("fits", number(known.is_some_and(|known| known.fits))),
        ("allocated_bytes", number(known.map(|known| known.allocated_bytes))),
        ("device_used_bytes", number(known.map(|known| known.device_used_bytes))),
        ("recompute", Node::List(levels.iter().map(|level| words(Some(level.name()))).collect())),
        ("headroom_bytes", number(known.map(|known| known.headroom_bytes))),
        ("reserve_bytes", number(RESERVE_BYTES)),
    ])
}

impl Plan {
    /// What the run needs besides its config: without it, the plan is of another run.
    fn needs(&self, config: &RunConfig) -> Node {
        let device = config.get_str("device");
        let is_elsewhere = device.is_some_and(|device| !device.is_empty() && !device.starts_with("cuda"));
        let changes = CodeChange::needed_by(&self.request.train)
            .into_iter()
            .map(|change| Node::Object(vec![("id", words(Some(change.id()))), ("file", words(Some(change.file())))]));
        Node::Object(vec![
            ("code_changes", Node::List(changes.collect())),
            ("device", words(is_elsewhere.then_some("cuda"))),
            ("environment", words(self.request.environment().as_deref())),
            ("vocab_size", self.request.given_vocab_size.map_or_else(|| words(None), number)),
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
