//! Planned allocation of a run as text and JSON, and its comparison with the actual one.

use std::path::Path;

use headroom_kernels::cuda::{Attention, BuiltinKernels, Gemm};
use headroom_planner::gpt::{
    GptConfig,
    buffers::{
        Buffer,
        cuda::{AttentionBackend, CudaTraining, Recompute, Slot},
    },
    tensors::Category,
};
use headroom_text::{self as text, Separator, Text, units::human_size};
use serde_json::{Map, Value as Json, json};

use super::engine::Engine;
use headroom_agent_core::platform::file_bytes_max;
use headroom_train::{
    checkpoint::{CheckpointError, DiskSpaceNeeded, check_folder, free_bytes},
    gpu::{HypotheticalGpu, SelectedGpu},
    gpu_request::MemoryBudget,
    memory::available_bytes,
};

/// Version of the JSON schema.
const SCHEMA: u32 = 1;

/// Output of `--plan`. `stock_configs` are the built-in configs that it uses.
pub fn document(
    stock_configs: &[String],
    gpt: &GptConfig,
    engine: &Engine,
    (out_dir, needed): (&Path, Option<DiskSpaceNeeded>),
    is_json: bool,
) -> String {
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
        "disk": needed.map(|needed| disk_json(out_dir, needed)),
        "stock_configs": stock_configs,
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
        Engine::Gpu(chosen) => {
            let SelectedGpu { device, room, plan, fits, .. } = &**chosen;
            on_gpu(Some(&device.gpu().name), room, plan, *fits, &BackendNames::of(chosen))
        }
        Engine::Elsewhere(gpu) => on_gpu(None, &gpu.room, &gpu.plan, gpu.fits, &BackendNames::elsewhere(gpu)),
    };
    if let (Json::Object(document), Json::Object(more)) = (&mut document, more) {
        document.extend(more);
    }
    // Verdict of the whole plan, consistent with the exit status.
    if needed.is_some_and(|needed| check_disk(engine, out_dir, needed).is_err()) {
        document["fits"] = json!(false);
    }
    format!("{document:#}\n")
}

/// GEMM backend and attention backend, as text.
struct BackendNames {
    gemm: String,
    attention: String,
}

impl BackendNames {
    fn of(chosen: &SelectedGpu) -> Self {
        Self { gemm: chosen.gemm_backend(), attention: chosen.attention_backend() }
    }

    fn elsewhere(gpu: &HypotheticalGpu) -> Self {
        let own = || Attention::name(&BuiltinKernels);
        let attention = match gpu.plan.libraries.attention_backend {
            AttentionBackend::BuiltinKernels => own(),
            AttentionBackend::Cudnn => format!("cuDNN as far as that is faster, else {}", own()),
        };
        Self { gemm: Gemm::name(&BuiltinKernels), attention }
    }
}

fn on_gpu(gpu: Option<&str>, room: &MemoryBudget, plan: &CudaTraining, fits: bool, by: &BackendNames) -> Json {
    json!({
        "gpu": gpu,
        "total_bytes": room.total_bytes,
        "free_bytes": room.free_bytes,
        "reserve_bytes": room.reserve_bytes,
        "fits": fits,
        "recompute": plan.recompute.iter().map(|level| level.name()).collect::<Vec<_>>(),
        "chunk_rows": plan.chunk_rows,
        "gemm_backend": by.gemm,
        "attention_backend": by.attention,
        "buffers": plan.slots.iter().map(slot).collect::<Vec<_>>(),
    })
}

fn buffer(buffer: &Buffer) -> Json {
    json!({ "name": buffer.name(), "elements": buffer.elements, "bytes": buffer.bytes })
}

/// A buffer with its offset, which buffers at other times may share.
fn slot(slot: &Slot) -> Json {
    let mut json = buffer(&slot.buffer);
    json["offset"] = slot.offset.into();
    json
}

/// Bytes by category: on the CPU of all buffers, on a GPU of those that are live at the peak.
fn categories(engine: &Engine) -> Vec<(Category, u64)> {
    match engine {
        Engine::Cpu { planned, .. } => {
            let of = |category| {
                let buffers = planned.all().iter().filter(|buffer| buffer.category() == category);
                buffers.map(|buffer| buffer.bytes).sum()
            };
            Category::ALL.into_iter().map(|category| (category, of(category))).filter(|(_, bytes)| *bytes > 0).collect()
        }
        Engine::Gpu(chosen) => chosen.plan.fullest(),
        Engine::Elsewhere(gpu) => gpu.plan.fullest(),
    }
}

/// The plan as text: total and categories, and on a GPU the recomputation and the free memory.
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
        Engine::Gpu(chosen) => {
            let why = chosen.why_own.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            let by = BackendNames::of(chosen);
            (&chosen.plan, chosen.room, BackendNames { gemm: format!("{}{why}", by.gemm), ..by })
        }
        Engine::Elsewhere(gpu) => (&gpu.plan, gpu.room, BackendNames::elsewhere(gpu)),
    };
    let in_fullest: u64 = categories.iter().map(|(_, bytes)| bytes).sum();
    line(bytes.saturating_sub(in_fullest), "padding, and buffers outside the peak");
    text.push_str(&format!("Recomputed in the backward pass: {}.\n", levels(plan)));
    let BackendNames { gemm, attention } = by;
    text.push_str(&format!("Matrix multiplication: {gemm}.\nAttention: {attention}.\n"));
    text.push_str(&format!(
        "Free GPU memory: {} of {}; {} kept in reserve.\n",
        human_size(room.free_bytes),
        human_size(room.total_bytes),
        human_size(room.reserve_bytes)
    ));
    text
}

/// Disk space for checkpoints, as text.
pub fn disk(out_dir: &Path, needed: Option<DiskSpaceNeeded>) -> String {
    let Some(needed) = needed else { return "An evaluation saves no checkpoint.\n".to_owned() };
    let DiskSpaceNeeded { file_bytes, total_bytes, missing_bytes } = needed;
    let [file, total] = [file_bytes, total_bytes].map(human_size);
    let free = free_bytes(out_dir).map_or_else(String::new, |free_bytes| {
        let less = if free_bytes < missing_bytes { ", which is too little" } else { "" };
        format!("; {} are free{less}", human_size(free_bytes))
    });
    let limit = file_bytes_max().filter(|limit_bytes| *limit_bytes < file_bytes);
    let limit = limit.map_or_else(String::new, |limit_bytes| {
        format!(
            "This process may write files of at most {} (ulimit -f), which is too little.\n",
            human_size(limit_bytes)
        )
    });
    format!("Its checkpoints take up to {total} of disk: {file} each, the last, the best and a new one{free}.\n{limit}")
}

/// Checks that the disk has room for the checkpoints and that a file may have their size, if the run is planned for this
/// machine.
///
/// # Errors
/// [`CheckpointError::NoRoom`], [`CheckpointError::FileLimit`].
pub fn check_disk(engine: &Engine, out_dir: &Path, needed: DiskSpaceNeeded) -> Result<(), CheckpointError> {
    match engine {
        Engine::Elsewhere(_) => Ok(()),
        Engine::Cpu { .. } | Engine::Gpu(_) => {
            // A directory that cannot be created has no disk.
            check_folder(out_dir)?;
            needed.check(out_dir, free_bytes(out_dir), file_bytes_max())
        }
    }
}

fn disk_json(out_dir: &Path, needed: DiskSpaceNeeded) -> Json {
    let DiskSpaceNeeded { file_bytes, total_bytes, missing_bytes } = needed;
    let (free_bytes, limit_bytes) = (free_bytes(out_dir), file_bytes_max());
    json!({
        "folder": out_dir.display().to_string(),
        "checkpoint_bytes": file_bytes,
        "bytes": total_bytes,
        "missing_bytes": missing_bytes,
        "free_bytes": free_bytes,
        "file_limit_bytes": limit_bytes,
        "fits": needed.check(out_dir, free_bytes, limit_bytes).is_ok(),
    })
}

/// Activation recomputation of a run on a GPU. `None` without any.
pub fn recomputed(engine: &Engine) -> Option<Text> {
    let plan = match engine {
        Engine::Cpu { .. } => return None,
        Engine::Gpu(chosen) => &chosen.plan,
        Engine::Elsewhere(gpu) => &gpu.plan,
    };
    plan.recompute.iter().any(|level| *level != Recompute::None).then(|| levels(plan))
}

/// Recomputation levels, by ranges of blocks.
fn levels(plan: &CudaTraining) -> Text {
    let what = |level| match level {
        Recompute::None => text::LEVEL_NONE,
        Recompute::GeluAndLayernorm => text::LEVEL_GELU,
        Recompute::Attention => text::LEVEL_ATTENTION,
        Recompute::Block => text::LEVEL_BLOCK,
    };
    if plan.recompute.iter().all(|&level| level == Recompute::None) {
        return what(Recompute::None).into();
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
        parts.push(text::level_of(what(blocks[0]), of));
        first = last + 1;
    }
    // The parts contain commas themselves.
    text::as_is(text::list(Separator::Semicolon, parts))
}

/// Name of the compute device, to follow "On".
pub fn engine(engine: &Engine) -> String {
    match engine {
        Engine::Elsewhere(gpu) => format!("a GPU with {}", human_size(gpu.room.total_bytes)),
        Engine::Cpu { threads: 1, .. } => "the CPU, 1 thread, float32".to_owned(),
        Engine::Cpu { threads, .. } => format!("the CPU, {threads} threads, float32"),
        Engine::Gpu(chosen) => {
            let name = &chosen.device.gpu().name;
            format!("{name} ({}), bfloat16 with weights and moments in float32", chosen.device_name())
        }
    }
}

/// Comparison of the actual allocation with the plan.
pub fn allocated(bytes: u64, planned: u64) -> String {
    if bytes == planned {
        format!("Allocated {bytes} bytes, as planned.\n")
    } else {
        format!("Allocated {bytes} bytes, {} other than planned; please report it.\n", bytes.abs_diff(planned))
    }
}
