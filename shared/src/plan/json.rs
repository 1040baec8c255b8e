//! A plan as JSON, schema 1: what `headroom plan --json` prints and the page exports. Other programs rely on the names.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Oom, Plan, basis::Basis, builtin::Row};
use crate::{advice::Advice, gpt::tensors::Category, hardware::Device, memory::program::Phase, text::Table};

/// The schema's number.
pub const SCHEMA: u32 = 1;

/// The whole document.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    schema: u32,
    config: &'a Map<String, Value>,
    device: &'a Device,
    fits: bool,
    headroom_bytes: i64,
    phases: Vec<PhaseRow>,
    peak: PeakRow,
    oom: &'a Option<Oom>,
    basis: &'a Basis,
    builtin: Row,
    fixes: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct PhaseRow {
    name: Phase,
    live_bytes_peak: u64,
    max_memory_allocated: u64,
    max_memory_reserved: u64,
}

#[derive(Debug, Serialize)]
struct PeakRow {
    phase: Phase,
    live_bytes: u64,
    max_memory_allocated: u64,
    max_memory_reserved: u64,
    device_used_bytes: u64,
    by_category: Map<String, Value>,
}

impl Plan {
    /// The plan as a document; `config` holds nanoGPT's keys after overrides, `table` says the fixes' notes.
    #[must_use]
    pub fn document<'a>(&'a self, config: &'a Map<String, Value>, advice: &Advice, table: &Table) -> Document<'a> {
        let by_category = Category::ALL
            .iter()
            .zip(self.peak.by_category)
            .map(|(category, bytes)| (category.name().to_owned(), Value::from(bytes)))
            .collect();
        Document {
            schema: SCHEMA,
            config,
            device: &self.request.device,
            fits: self.fits,
            headroom_bytes: self.headroom_bytes,
            phases: self
                .phases
                .iter()
                .map(|peak| PhaseRow {
                    name: peak.phase,
                    live_bytes_peak: peak.live_bytes,
                    max_memory_allocated: peak.max_allocated_bytes,
                    max_memory_reserved: peak.max_reserved_bytes,
                })
                .collect(),
            peak: PeakRow {
                phase: self.peak.phase,
                live_bytes: self.peak.live_bytes,
                max_memory_allocated: self.peak.max_allocated_bytes,
                max_memory_reserved: self.peak.max_reserved_bytes,
                device_used_bytes: self.peak.device_used_bytes,
                by_category,
            },
            oom: &self.oom,
            basis: &self.basis,
            builtin: Row::of(&self.request, table),
            fixes: advice.fixes.iter().map(|fix| fix.json(table)).collect(),
        }
    }
}
