//! What a run is to allocate, in words and as JSON; what it did allocate, held against that.

use std::path::Path;

use headroom_kernels::cuda::{Attention, Own, Products};
use headroom_shared::{
    gpt::{
        GptConfig,
        buffers::{
            Buffer,
            cuda::{Attender, CudaTraining, Recompute, Slot},
        },
        tensors::Category,
    },
    text::{self, Text},
    units::human_size,
};
use serde_json::{Map, Value as Json, json};

use super::engine::Engine;
use crate::train::{
    card::{Chosen, Elsewhere, Room},
    checkpoint::{Needed, free_bytes},
    memory::available_bytes,
};

/// The schema's number.
const SCHEMA: u32 = 1;

/// The plan, alone.
pub fn document(gpt: &GptConfig, engine: &Engine, (out_dir, needed): (&Path, Needed), is_json: bool) -> String {
    if !is_json {
        return format!("On {}.\n{}{}", self::engine(engine), words(engine), disk(out_dir, needed));
    }
    let by_category: Map<String, Json> =
        categories(engine).into_iter().map(|(category, bytes)| (category.name().to_owned(), bytes.into())).collect();
    let mut document = json!({
        "schema": SCHEMA,
        "parameters": gpt.n_parameters(),
        "device": engine.device_name(),
        "bytes": engine.planned_bytes(),
        "by_category": by_category,
        "disk": disk_json(out_dir, needed),
    });
    let more = match engine {
        Engine::Cpu { planned, .. } => {
            let free_bytes = available_bytes();
            json!({
                "free_bytes": free_bytes,
                "reserve_bytes": 0,
                "fits": free_bytes.is_none_or(|free_bytes| planned.bytes() <= free_bytes),
                "buffers": planned.all().iter().map(buffer).collect::<Vec<_>>(),
            })
        }
        Engine::Card(chosen) => {
            let Chosen { device, room, plan, fits, .. } = &**chosen;
            on_card(Some(&device.card().name), room, plan, *fits, &By::of(chosen))
        }
        Engine::Elsewhere(card) => on_card(None, &card.room, &card.plan, card.fits, &By::elsewhere(card)),
    };
    if let (Json::Object(document), Json::Object(more)) = (&mut document, more) {
        document.extend(more);
    }
    format!("{document:#}\n")
}

/// Who does what, in words.
struct By {
    multiplied: String,
    attended: String,
}

impl By {
    fn of(chosen: &Chosen) -> Self {
        Self { multiplied: chosen.multiplied_by(), attended: chosen.attention_by() }
    }

    fn elsewhere(card: &Elsewhere) -> Self {
        let own = || Attention::name(&Own);
        let attended = match card.plan.libraries.attender {
            Attender::Own => own(),
            Attender::Cudnn => format!("cuDNN as far as that is faster, else {}", own()),
        };
        Self { multiplied: Products::name(&Own), attended }
    }
}

fn on_card(card: Option<&str>, room: &Room, plan: &CudaTraining, fits: bool, by: &By) -> Json {
    json!({
        "card": card,
        "total_bytes": room.total_bytes,
        "free_bytes": room.free_bytes,
        "reserve_bytes": room.reserve_bytes,
        "fits": fits,
        "recompute": plan.recompute.iter().map(|level| level.name()).collect::<Vec<_>>(),
        "chunk_rows": plan.chunk_rows,
        "multiplied_by": by.multiplied,
        "attention_by": by.attended,
        "buffers": plan.slots.iter().map(slot).collect::<Vec<_>>(),
    })
}

fn buffer(buffer: &Buffer) -> Json {
    json!({ "name": buffer.name(), "elements": buffer.elements, "bytes": buffer.bytes })
}

/// A buffer with its place, which others may have in other moments.
fn slot(slot: &Slot) -> Json {
    let mut json = buffer(&slot.buffer);
    json["offset"] = slot.offset.into();
    json
}

/// On the CPU of all buffers, on a card of those that are needed in its fullest moment.
fn categories(engine: &Engine) -> Vec<(Category, u64)> {
    match engine {
        Engine::Cpu { planned, .. } => {
            let of = |category| {
                let buffers = planned.all().iter().filter(|buffer| buffer.category() == category);
                buffers.map(|buffer| buffer.bytes).sum()
            };
            Category::ALL.into_iter().map(|category| (category, of(category))).filter(|(_, bytes)| *bytes > 0).collect()
        }
        Engine::Card(chosen) => chosen.plan.fullest(),
        Engine::Elsewhere(card) => card.plan.fullest(),
    }
}

/// The plan in words: how much, of what, and on a card what is computed again and what is free.
pub fn words(engine: &Engine) -> String {
    let bytes = engine.planned_bytes();
    let mut text = format!("It will allocate {} ({bytes} bytes):\n", human_size(bytes));
    let mut line = |bytes: u64, what: &str| text.push_str(&format!("  {:>10}  {what}\n", human_size(bytes)));
    let categories = categories(engine);
    for (category, bytes) in &categories {
        line(*bytes, &category.text().to_string());
    }
    let (plan, room, by) = match engine {
        Engine::Cpu { .. } => return text,
        Engine::Card(chosen) => {
            let why = chosen.why_own.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            let by = By::of(chosen);
            (&chosen.plan, chosen.room, By { multiplied: format!("{}{why}", by.multiplied), ..by })
        }
        Engine::Elsewhere(card) => (&card.plan, card.room, By::elsewhere(card)),
    };
    let in_fullest: u64 = categories.iter().map(|(_, bytes)| bytes).sum();
    line(bytes.saturating_sub(in_fullest), "between buffers, and of other moments than the fullest");
    text.push_str(&format!("Computed again in backward: {}.\n", levels(plan)));
    let By { multiplied, attended } = by;
    text.push_str(&format!("Matrices are multiplied by {multiplied}.\nAttention is computed by {attended}.\n"));
    text.push_str(&format!(
        "Free on the card: {} of {}; {} are left alone.\n",
        human_size(room.free_bytes),
        human_size(room.total_bytes),
        human_size(room.reserve_bytes)
    ));
    text
}

/// The disk space that checkpoints take, in words.
pub fn disk(out_dir: &Path, needed: Needed) -> String {
    let Needed { file_bytes, total_bytes, missing_bytes } = needed;
    let [file, total] = [file_bytes, total_bytes].map(human_size);
    let free = free_bytes(out_dir).map_or_else(String::new, |free_bytes| {
        let less = if free_bytes < missing_bytes { ", which is too little" } else { "" };
        format!("; {} are free{less}", human_size(free_bytes))
    });
    format!("Its checkpoints take up to {total} of disk: {file} each, the last, the best and a new one{free}.\n")
}

fn disk_json(out_dir: &Path, needed: Needed) -> Json {
    let Needed { file_bytes, total_bytes, missing_bytes } = needed;
    let free_bytes = free_bytes(out_dir);
    json!({
        "folder": out_dir.display().to_string(),
        "checkpoint_bytes": file_bytes,
        "bytes": total_bytes,
        "missing_bytes": missing_bytes,
        "free_bytes": free_bytes,
        "fits": free_bytes.is_none_or(|free_bytes| missing_bytes <= free_bytes),
    })
}

/// What is computed again, by runs of blocks.
fn levels(plan: &CudaTraining) -> String {
    let what = |level| match level {
        Recompute::None => text::LEVEL_NONE,
        Recompute::GeluAndLayernorm => text::LEVEL_GELU,
        Recompute::Attention => text::LEVEL_ATTENTION,
        Recompute::Block => text::LEVEL_BLOCK,
    };
    if plan.recompute.iter().all(|&level| level == Recompute::None) {
        return what(Recompute::None).to_string();
    }
    let mut first = 0;
    let mut parts = vec![];
    for blocks in plan.recompute.chunk_by(|one, other| one == other) {
        let last = first + blocks.len() - 1;
        let of = match blocks {
            _ if blocks.len() == plan.recompute.len() => Text::from(text::BLOCKS_ALL),
            [_] => text::blocks_one(first),
            _ => text::blocks_some(first, last),
        };
        parts.push(text::level_of(what(blocks[0]), of).to_string());
        first = last + 1;
    }
    // What is computed again has commas of its own.
    parts.join("; ")
}

/// What computes, as the end of "On".
pub fn engine(engine: &Engine) -> String {
    match engine {
        Engine::Elsewhere(card) => format!("a card of {}", human_size(card.room.total_bytes)),
        Engine::Cpu { threads, .. } => format!("the CPU, {threads} threads, float32"),
        Engine::Card(chosen) => {
            let name = &chosen.device.card().name;
            format!("{name} ({}), bfloat16 with weights and moments in float32", chosen.device_name())
        }
    }
}

/// What was allocated, held against the plan.
pub fn allocated(bytes: u64, planned: u64) -> String {
    if bytes == planned {
        format!("Allocated {bytes} bytes, as planned.\n")
    } else {
        format!("Allocated {bytes} bytes, {} other than planned; please report it.\n", bytes.abs_diff(planned))
    }
}
