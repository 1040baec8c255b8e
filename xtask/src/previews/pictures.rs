//! The HTML of each page's preview image. The planner computes every figure in it.

use super::drawing::{chart, legend, meter, stack};
use crate::failure::{Failure, Result};
use headroom_languages::english;
use headroom_planner::{
    advice::{Change, advise},
    gpt::{
        GptConfig, GptShape,
        buffers::{Buffers, Storage, decoder},
    },
    nanogpt::Source,
    plan::{Fit, Plan, RunOnMachine, plan},
    recording::{self, Decoder},
    request::Machine,
    session::{Options, ResolvedSession, resolve},
    survey,
    trainers::{self, TrainerRequest, hf, presets},
};
use headroom_text::{self as text, Text, units::human_size};

/// Size of every image in pixels, as sites expect it of a large image.
pub const SIZE: [u32; 2] = [1200, 630];

/// GPU of the images with one GPU.
const GPU: &str = "RTX 4070";
/// GPUs in the list of the page Which GPU.
const GPUS: [&str; 5] =
    ["GeForce RTX 4060", "GeForce RTX 4070", "GeForce RTX 3090", "GeForce RTX 4090", "H100 80GB HBM3"];
/// Runs of the page My GPUs: a GPU and arguments.
const RUNS: [(&str, &[&str]); 3] = [
    ("GeForce RTX 4070", &[]),
    ("GeForce RTX 4090", &["--batch_size=24"]),
    ("H100 80GB HBM3", &["--n_layer=24", "--n_head=16", "--n_embd=1024", "--batch_size=32"]),
];
/// Arguments of the two runs of the page Compare.
const COMPARED: [&str; 2] = ["--batch_size=12", "--batch_size=16"];
/// Micro-batches of the start page's image.
const STARTED: [u64; 2] = [12, 16];
/// Models of the page of other trainers than nanoGPT.
const MODELS: [&str; 5] = ["Qwen3-0.6B", "Qwen3-1.7B", "Llama-3.2-3B", "Qwen3-4B", "Qwen3-8B"];
/// Options of their runs.
const LORA: [&str; 4] = ["--bf16", "--per_device_train_batch_size=1", "--lora_r=16", "--gradient_checkpointing"];
/// Beginning of a story that the demo's model continues.
const STORY: &str = "Once upon a time, ";
/// Sentences of PyTorch's message in the image of Diagnose. The rest repeats figures and advises.
const SENTENCES: usize = 3;

const FRAME: &str = include_str!("frame.html");
const TOKENS: &str = include_str!("../../../web/styles/tokens.css");

/// A page's image.
pub struct Picture {
    /// Name of the page and of the image, without ending.
    pub page: &'static str,
    /// Name of the page in the image.
    title: &'static str,
    template: &'static str,
    values: Vec<(&'static str, String)>,
}

impl Picture {
    /// Returns the HTML of the image. `icon` is the address of the icon.
    pub fn html(&self, icon: &str) -> Result<String> {
        let content = filled(self.template, &self.values)?;
        let values = [
            ("tokens", TOKENS.to_owned()),
            ("icon", icon.to_owned()),
            ("page", self.title.to_owned()),
            ("content", content),
        ];
        filled(FRAME, &values)
    }
}

/// Replaces `{{name}}` by its value. Fails for a name without a value, and for a value without a place.
fn filled(template: &str, values: &[(&str, String)]) -> Result<String> {
    let mut parts = template.split("{{");
    let mut out = parts.next().unwrap_or_default().to_owned();
    let mut used = 0;
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        let Some((_, value)) = values.iter().find(|(known, _)| *known == name) else {
            return Err(Failure::new(format!("a template of xtask/src/previews names `{name}`, which has no value")));
        };
        used += 1;
        out.push_str(value);
        out.push_str(rest);
    }
    if used < values.len() {
        return Err(Failure::new("a value has no place in its template of xtask/src/previews"));
    }
    Ok(out)
}

/// Returns the images of all pages.
pub fn all() -> Result<Vec<Picture>> {
    Ok(vec![
        start()?,
        calculator()?,
        diagnose()?,
        gpus()?,
        compare()?,
        demo()?,
        rig()?,
        embed()?,
        trainers()?,
        replay()?,
    ])
}

/// A planned run: nanoGPT's defaults with arguments.
struct Run {
    options: Options,
    session: ResolvedSession,
    plan: Plan,
}

impl Run {
    fn new(gpu: &str, arguments: &[&str]) -> Result<Self> {
        let sources: Vec<Source> =
            arguments.iter().map(|argument| Source::Override { text: (*argument).to_owned() }).collect();
        let options = Options { gpu: gpu.to_owned(), ..Options::default() };
        let session = resolve(&sources, &options);
        let request = session.request.clone();
        let plan = request.and_then(|request| plan(request).ok());
        let plan = plan.ok_or_else(|| Failure::new(format!("no plan on {gpu} with {arguments:?}")))?;
        Ok(Self { options, session, plan })
    }

    /// The model and its batch: "GPT-2 124M, batch 12 × 1024".
    fn words(&self) -> String {
        let (gpt, train) = (&self.plan.request.gpt, &self.plan.request.train);
        let millions = gpt.n_parameters().unwrap_or(0) / 1_000_000;
        format!("GPT-2 {millions}M, batch {} × {}", train.batch_size, gpt.block_size())
    }

    /// The GPU and its memory.
    fn gpu(&self) -> String {
        let device = &self.plan.request.machine.device;
        format!("{}, {}", short(&device.name), human_size(device.total_bytes))
    }

    /// The verdict in a sentence.
    fn verdict(&self) -> String {
        let left: fn(text::Part) -> Text = match self.plan.fit() {
            Fit::Fits => text::fits,
            Fit::Narrow => text::fits_narrowly,
            Fit::Fails => text::does_not_fit,
        };
        english().say(&left(text::size(self.plan.headroom_bytes.unsigned_abs())))
    }

    fn outcome(&self) -> &'static str {
        class(self.plan.fit())
    }

    /// A bar of the memory in use, within the GPU's memory.
    fn meter(&self) -> String {
        meter(self.plan.peak.device_used_bytes, self.plan.request.machine.device.total_bytes)
    }
}

/// The class of an outcome in the images.
const fn class(fit: Fit) -> &'static str {
    match fit {
        Fit::Fits => "good",
        Fit::Narrow => "warn",
        Fit::Fails => "bad",
    }
}

/// The name of a GPU without its maker.
fn short(name: &str) -> &str {
    name.trim_start_matches("NVIDIA ").trim_start_matches("GeForce ").trim_end_matches(" HBM3")
}

fn start() -> Result<Picture> {
    let machine = machine()?;
    let mut rows = String::new();
    for batch_size in STARTED {
        let run = Run::new(GPU, &[&format!("--batch_size={batch_size}")])?;
        let name = format!("GPT-2 124M, batch {batch_size}");
        rows.push_str(&row_of(&name, &run.plan));
    }
    for name in &MODELS[..STARTED.len()] {
        rows.push_str(&row_of(&format!("LoRA of {name}"), &lora(name, &machine)?));
    }
    let values = vec![("gpu", GPU.to_owned()), ("rows", rows)];
    Ok(Picture { page: "index", title: "know before you OOM", template: include_str!("index.html"), values })
}

fn calculator() -> Result<Picture> {
    let run = Run::new(GPU, &[])?;
    let values = vec![
        ("outcome", run.outcome().to_owned()),
        ("verdict", run.verdict()),
        ("run", run.words()),
        ("gpu", run.gpu()),
        ("chart", chart(&run.plan)),
    ];
    Ok(Picture { page: "calculator", title: "Calculator", template: include_str!("calculator.html"), values })
}

fn diagnose() -> Result<Picture> {
    let run = Run::new(GPU, &["--batch_size=64"])?;
    let oom = run.plan.oom.as_ref().ok_or_else(|| Failure::new("the run of Diagnose's image does not fail"))?;
    let advice = advise(&run.session.settings, &run.options, &run.plan);
    let fix = advice.fixes.iter().find(|fix| fix.fits).ok_or_else(|| Failure::new("no fix suffices"))?;
    let settings: Vec<String> = fix.changes.iter().map(Change::argument).collect();
    let shape: Vec<String> = oom.shape.iter().map(u64::to_string).collect();
    let message: Vec<&str> = oom.message.split(". ").take(SENTENCES).collect();
    let values = vec![
        ("message", format!("{}. …", message.join(". "))),
        ("tensor", format!("{} ({}) {}", oom.tensor, shape.join(", "), oom.dtype.name())),
        ("phase", english().say(&oom.phase.text_in().into())),
        ("fix", settings.join(" ")),
        ("left", human_size(fix.headroom_bytes.unsigned_abs())),
    ];
    Ok(Picture { page: "diagnose", title: "Diagnose", template: include_str!("diagnose.html"), values })
}

fn gpus() -> Result<Picture> {
    let run = Run::new(GPU, &[])?;
    let rows = survey::gpus(&run.session.settings, &run.options, 0..survey::n_gpus());
    let (fitting, _) = survey::smallest(&rows);
    let largest = GPUS.iter().filter_map(|name| rows.iter().find(|row| row.device.name == *name));
    let largest = largest.map(|row| row.device.total_bytes).max().unwrap_or(1);
    let mut lines = String::new();
    for name in GPUS {
        let row = rows.iter().find(|row| row.device.name == name);
        let Some((row, summary)) = row.and_then(|row| Some((row, row.summary?))) else {
            return Err(Failure::new(format!("no plan on {name}")));
        };
        let total = row.device.total_bytes;
        let used = total.saturating_add_signed(summary.headroom_bytes.saturating_neg());
        lines.push_str(&verdict_row(short(name), [used, total, largest], summary.headroom_bytes, summary.fit));
    }
    let values = vec![
        ("fitting", fitting.to_string()),
        ("all", survey::n_gpus().to_string()),
        ("run", run.words()),
        ("rows", lines),
    ];
    Ok(Picture { page: "gpus", title: "Which GPU", template: include_str!("gpus.html"), values })
}

fn compare() -> Result<Picture> {
    let [pinned, changed] = COMPARED.map(|argument| Run::new(GPU, &[argument]));
    let (pinned, changed) = (pinned?, changed?);
    let row = |run: &Run| {
        let (outcome, verdict) = (run.outcome(), run.verdict());
        format!("<p><b>{}</b> <span class=\"{outcome}\">{verdict}</span></p>{}", run.words(), run.meter())
    };
    let more = changed.plan.peak.device_used_bytes.checked_sub(pinned.plan.peak.device_used_bytes);
    let more = more.ok_or_else(|| Failure::new("the second run of Compare's image needs less memory"))?;
    let values =
        vec![("more", human_size(more)), ("gpu", pinned.gpu()), ("rows", [&pinned, &changed].map(row).concat())];
    Ok(Picture { page: "compare", title: "Compare", template: include_str!("compare.html"), values })
}

/// The GPU of most images.
fn machine() -> Result<Machine> {
    let machine = Options { gpu: GPU.to_owned(), ..Options::default() }.machine();
    machine.map_err(|error| Failure::new(error.to_string()))
}

/// The plan of a model's adapters.
fn lora(name: &str, machine: &Machine) -> Result<Plan<TrainerRequest>> {
    let preset = presets::find(name).ok_or_else(|| Failure::new(format!("no model {name}")))?;
    let run = hf::Run::read(&preset.config(), &LORA.map(str::to_owned));
    let run = run.map_err(|error| Failure::new(error.to_string()))?;
    let request = TrainerRequest::new(trainers::Run::Hf(run), machine.clone());
    let request = request.map_err(|error| Failure::new(error.to_string()))?;
    trainers::plan(request).map_err(|error| Failure::new(error.to_string()))
}

/// A row of a plan, with a meter of its GPU's memory.
fn row_of<R: RunOnMachine>(name: &str, plan: &Plan<R>) -> String {
    let total = plan.request.machine().device.total_bytes;
    verdict_row(name, [plan.peak.device_used_bytes, total, total], plan.headroom_bytes, plan.fit())
}

fn trainers() -> Result<Picture> {
    let machine = machine()?;
    let mut lines = String::new();
    for name in MODELS {
        lines.push_str(&row_of(name, &lora(name, &machine)?));
    }
    let values = vec![("gpu", GPU.to_owned()), ("rows", lines)];
    Ok(Picture {
        page: "trainers",
        title: "nanochat and Hugging Face",
        template: include_str!("trainers.html"),
        values,
    })
}

/// Recordings with the names of their programs.
const RECORDINGS: [(&str, &[u8]); 3] = [
    ("Qwen3", include_bytes!("../../../tests/golden/recordings/hf_qwen3_lora.headroom")),
    ("nanochat", include_bytes!("../../../tests/golden/recordings/nanochat.headroom")),
    ("nanoGPT", include_bytes!("../../../tests/golden/recordings/nanogpt_124m.headroom")),
];

fn replay() -> Result<Picture> {
    let machine = machine()?;
    let mut lines = String::new();
    for (name, bytes) in RECORDINGS {
        let mut decoder = Decoder::default();
        let decoded = decoder.push(bytes).and_then(|()| decoder.finish());
        let recording = decoded.map_err(|error| Failure::new(format!("{name}: {error}")))?;
        let plan = recording::plan(&recording, machine.clone());
        lines.push_str(&row_of(name, &plan.map_err(|error| Failure::new(error.to_string()))?));
    }
    let values = vec![("gpu", GPU.to_owned()), ("rows", lines)];
    Ok(Picture { page: "replay", title: "Any PyTorch program", template: include_str!("replay.html"), values })
}

/// A row of a table: a name, the meter of used, total and largest bytes, and the memory left.
fn verdict_row(name: &str, [used, total, largest]: [u64; 3], headroom_bytes: i64, fit: Fit) -> String {
    let size = human_size(headroom_bytes.unsigned_abs());
    let (sign, word) = if fit == Fit::Fails { ("✕", "short") } else { ("✓", "left") };
    let meter = super::drawing::meter_of(used, total, largest);
    format!("<tr><td>{name}</td><td>{meter}</td><td class=\"{}\">{sign} {size} {word}</td></tr>", class(fit))
}

fn demo() -> Result<Picture> {
    // The shape of web/demo/stories.safetensors.
    let shape =
        GptShape { n_layer: 4, n_head: 4, n_embd: 128, block_size: 256, vocab_size: 75, dropout: 0.0, bias: false };
    let config = GptConfig::new(shape).map_err(|error| Failure::new(error.to_string()))?;
    let buffers: Buffers = decoder(&config, Storage::F32).map_err(|error| Failure::new(error.text().to_string()))?;
    let letters: String =
        STORY.chars().map(|char| format!("<span>{}</span>", if char == ' ' { '␣' } else { char })).collect();
    let values = vec![
        ("parameters", english().grouped(config.n_parameters().unwrap_or(0))),
        ("layers", shape.n_layer.to_string()),
        ("letters", letters + "<span>?</span>"),
        ("bytes", english().grouped(buffers.bytes())),
        ("stack", stack(&buffers)),
        ("legend", legend(&buffers)),
    ];
    Ok(Picture { page: "demo", title: "Demo", template: include_str!("demo.html"), values })
}

fn rig() -> Result<Picture> {
    let mut rows = String::new();
    for (gpu, arguments) in RUNS {
        let run = Run::new(gpu, arguments)?;
        let used = human_size(run.plan.peak.device_used_bytes);
        rows.push_str(&format!(
            "<p><b>{}</b> {} <span>{used} predicted</span></p>{}",
            run.gpu(),
            run.words(),
            run.meter()
        ));
    }
    Ok(Picture { page: "rig", title: "My GPUs", template: include_str!("rig.html"), values: vec![("rows", rows)] })
}

fn embed() -> Result<Picture> {
    let config = "--batch_size=12";
    let run = Run::new(GPU, &[config])?;
    let values = vec![
        ("config", config.to_owned()),
        ("name", GPU.to_owned()),
        ("outcome", run.outcome().to_owned()),
        ("verdict", run.verdict()),
        ("gpu", run.gpu()),
        ("meter", run.meter()),
    ];
    Ok(Picture { page: "embed", title: "Embed", template: include_str!("embed.html"), values })
}
