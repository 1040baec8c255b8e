//! The answer as JSON, schema 1: the output of `headroom fit --json`.

use super::{FitAnswer, GpuRow, Limit, SmallestGpu};
use crate::{
    hardware::Device,
    plan::{Fit, Room},
    report::{Node, Object, SCHEMA, number, words},
};
use serde_json::{Map, Value};

/// A number, or null.
fn or_null(value: Option<u64>) -> Node {
    value.map_or_else(|| words(None), number)
}

impl FitAnswer {
    /// The answer as a document, for a run of this trainer with this config on this GPU.
    #[must_use]
    pub fn document(&self, trainer: &'static str, config: Map<String, Value>, device: &Device, given: Room) -> Node {
        let device = vec![("name", words(Some(&device.name))), ("total_bytes", number(device.total_bytes))];
        let batch_key = self.limits.first().map(|limit| limit.knob.key);
        let smallest = self.smallest.as_ref();
        let mut document = vec![
            ("schema", number(SCHEMA)),
            ("trainer", words(Some(trainer))),
            ("config", Node::Value(Value::Object(config))),
            ("device", Node::Object(device)),
        ];
        document.push(("fits", number(given.fit != Fit::Fails)));
        document.extend(given.fields());
        document.extend([
            ("limits", Node::List(self.limits.iter().map(|limit| Node::Object(limit.fields())).collect())),
            ("batch_key", words(batch_key)),
            ("gpus", Node::List(self.gpus.iter().map(|row| row.node(&self.batch_sizes)).collect())),
            ("smallest_gpu", smallest.map_or_else(|| words(None), SmallestGpu::node)),
        ]);
        Node::Object(document)
    }
}

impl Room {
    fn fields(&self) -> Object {
        vec![
            ("outcome", words(Some(self.fit.name()))),
            ("headroom_bytes", number(self.headroom_bytes)),
            ("headroom_band_bytes", Node::List(self.band_bytes.map(number).into())),
        ]
    }
}

impl Limit {
    fn fields(&self) -> Object {
        vec![
            ("key", words(Some(self.knob.key))),
            ("given", number(self.knob.value)),
            ("largest", or_null(self.largest)),
            ("may_fit", or_null(self.may_fit)),
            ("max_tried", number(self.knob.max)),
        ]
    }
}

impl GpuRow {
    fn node(&self, sizes: &[u64]) -> Node {
        let figures = self.figures.as_ref().ok();
        let limit = figures.map(|figures| figures.limit);
        let rooms = figures.map_or(&[][..], |figures| &figures.rooms);
        let cells = sizes.iter().zip(rooms).map(|(size, room)| {
            let none =
                [("outcome", words(None)), ("headroom_bytes", words(None)), ("headroom_band_bytes", words(None))];
            let room = room.map_or_else(|| none.into(), |room| room.fields());
            Node::Object([vec![("batch_size", number(*size))], room].concat())
        });
        Node::Object(vec![
            ("name", words(Some(&self.device.name))),
            ("total_bytes", number(self.device.total_bytes)),
            ("given", number(self.is_given)),
            ("obstacle", words(self.figures.as_ref().err().map(String::as_str))),
            ("largest", or_null(limit.and_then(|limit| limit.largest))),
            ("may_fit", or_null(limit.and_then(|limit| limit.may_fit))),
            ("batch_sizes", Node::List(cells.collect())),
        ])
    }
}

impl SmallestGpu {
    fn node(&self) -> Node {
        Node::Object(vec![
            ("name", words(Some(&self.device.name))),
            ("total_bytes", number(self.device.total_bytes)),
            ("headroom_bytes", number(self.room.headroom_bytes)),
            ("listed", number(self.is_listed)),
        ])
    }
}
