//! Every English word of the page, in one table, so that other languages can stand beside it.

use headroom_shared::{
    advice::{Kind, Switch},
    gpt::tensors::{Category, Lifetime},
    memory::program::Phase,
    nanogpt::PastedKind,
    plan::basis::Certainty,
};

pub const NAME: &str = "Headroom";
pub const TAGLINE: &str = "know before you OOM";
/// The pages with their addresses.
pub const PAGE_LINKS: [(&str, &str); 3] = [("Budget", "./"), ("Diagnose", "./diagnose.html"), (EMBED, "./embed.html")];
pub const PAGES: &str = "Pages";
pub const SKIP_TO_ANSWER: &str = "Skip to the answer";
pub const BYTES: &str = "bytes";

pub const THEME: &str = "Theme";
pub const THEMES: [&str; 3] = ["Auto", "Light", "Dark"];

// The run.
pub const YOUR_RUN: &str = "Run";
pub const GPU: &str = "GPU";
pub const GPU_HINT: &str = "A card's name, or its memory, as 11.69GiB";
pub const NO_CARD_MATCHES: &str = "No card of the table; an amount such as 16GiB works too";
pub const OTHERS: &str = "Other programs, GiB";
pub const OTHERS_HINT: &str = "What the desktop, a browser or another run holds on the card (nvidia-smi shows it)";
pub const START_FROM: &str = "Start from";
pub const START_FROM_CHOOSE: &str = "a run…";
pub const MODEL: &str = "Model";
pub const MODEL_OTHER: &str = "own shape";
pub const MODEL_LOADED: &str = "from OpenAI's weights";
pub const CONFIG: &str = "Config, command or log";
pub const CONFIG_PLACEHOLDER: &str =
    "Paste a nanoGPT config.py, the command you start it with, or the head of its log. Or drop a file here.";
pub const OPEN_FILE: &str = "Open file";
pub const DROP_HERE: &str = "Drop the config to read it";
pub const FILE_TOO_LARGE: &str = "That file is larger than 5 MB; a config has a few kilobytes.";
pub const COPY_CONFIG: &str = "Copy config";
pub const MORE: &str = "More";
pub const SLIDER: &str = "slider";

pub const DTYPE: &str = "dtype";
pub const COMPILE: &str = "compile";
pub const BIAS: &str = "bias";

pub const TORCH: &str = "PyTorch";
pub const TORCH_HINT: &str = "The version that words the message; sizes follow 2.11";
pub const EXPANDABLE: &str = "expandable_segments";
pub const EXPANDABLE_HINT: &str = "PYTORCH_ALLOC_CONF=expandable_segments:True: less is lost to fragmentation";
pub const ATTENTION: &str = "Attention";
pub const ATTENTIONS: [&str; 2] = ["flash", "math"];
pub const ATTENTION_HINT: &str = "flash: scaled_dot_product_attention picks its kernel. math: holds (B, H, T, T)";
pub const CHECKPOINTING: &str = "Activation checkpointing";
pub const CHECKPOINTING_HINT: &str = "A patch: each block is computed again in backward instead of kept";
pub const EVAL_BATCH_SIZE_HINT: &str = "A patch: the batch of estimate_loss where it is not batch_size";
pub const DEL_EVAL_LOGITS: &str = "del logits in evaluation";
pub const DEL_EVAL_LOGITS_HINT: &str = "A patch: logits are let go after each batch of estimate_loss";
pub const DEL_TRAIN_LOGITS: &str = "del logits after backward";
pub const DEL_TRAIN_LOGITS_HINT: &str = "A patch: logits are let go after each backward";
pub const CROSS_ENTROPY: &str = "Cross-entropy";
pub const CROSS_ENTROPIES: [&str; 3] = ["whole", "chunked", "fused"];
pub const CROSS_ENTROPY_HINT: &str = "whole: nanoGPT's. chunked or fused (Liger): never holds all logits";
pub const OPTIMIZER: &str = "Optimizer";
pub const OPTIMIZERS: [&str; 3] = ["AdamW fused", "AdamW foreach", "AdamW 8-bit"];
pub const OPTIMIZER_HINT: &str = "fused: nanoGPT's on a GPU. 8-bit: bitsandbytes";
pub const PROCESSES: &str = "Processes (DDP)";
pub const PROCESSES_HINT: &str = "torchrun's processes in all; each has its own card";
pub const CONTEXT: &str = "CUDA context, MiB";
pub const CONTEXT_HINT: &str = "What the process holds outside PyTorch; empty takes the estimate for the card";

// What fields take.
pub const A_COUNT: &str = "a whole number, 1 or more";
pub const A_COUNT_OR_NONE: &str = "a whole number, 0 or more";
pub const A_SHARE: &str = "a number from 0 to 1";
pub const A_SIZE_IN_GIB: &str = "a size such as 1.97, 800MiB or 2GB";
pub const A_SIZE_IN_MIB: &str = "a size such as 480 or 0.5GiB";
pub const A_VERSION: &str = "a version such as 2.11";

/// What a field says of a text that it does not take.
pub fn not_taken(expected: &str, kept: &str) -> String {
    if kept.is_empty() { format!("Not {expected}") } else { format!("Not {expected}; the plan keeps {kept}") }
}

// What was read.
pub const READS_DEFAULTS: &str = "Nothing is set: train.py's own defaults.";
pub const FOREIGN: &str = "Nothing of nanoGPT was found in this text; this is the plan of train.py's own defaults.";
pub const FOREIGN_OUT_OF_MEMORY: &str = "This is a message of a run out of memory, not its config: the page Diagnose explains it. The plan here is of train.py's own defaults.";
pub const DISMISS: &str = "Dismiss";

/// What a text was taken for.
pub fn read_as(kind: PastedKind, n_keys: usize) -> String {
    let what = match kind {
        PastedKind::Config => "a config",
        PastedKind::Command => "a command",
        PastedKind::Log => "a log",
    };
    let keys = if n_keys == 1 { "key" } else { "keys" };
    format!("Read as {what}: {n_keys} {keys} of nanoGPT set.")
}

/// Parts of a link that were left out.
pub fn link_left_out(parts: &[String], later: Option<u32>) -> String {
    let parts = parts.join(", ");
    match (later, parts.is_empty()) {
        (Some(_), true) => "This link was made by a later Headroom; everything in it was understood.".to_owned(),
        (Some(_), false) => format!("This link was made by a later Headroom. Not understood and left out: {parts}"),
        (None, _) => format!("Not understood in this link and left out: {parts}"),
    }
}

// The verdict.
pub const NO_PLAN: &str = "No plan yet";
pub const NO_PLAN_DETAIL: &str = "The run as it stands cannot be planned.";
pub const STALE: &str = "The last plan, until what is named beside the config is mended.";
pub const NOTHING_TO_DRAW: &str = "Nothing to draw until what is named above and beside the config is mended.";
pub const NOTHING_READ: &str = "Nothing of nanoGPT in this text";
pub const OUT_OF_MEMORY_READ: &str = "A message, not a config";

/// The detail where the plan is not of the text.
pub fn nothing_read_detail(headline: &str) -> String {
    format!("This is the plan of train.py's own defaults instead. {headline}.")
}

pub fn fits(left: &str) -> String {
    format!("Fits: {left} left")
}

pub fn fits_narrowly(left: &str) -> String {
    format!("Fits narrowly: {left} left")
}

/// What the whole run lacks; where it fails, it may lack less.
pub fn does_not_fit(short: &str) -> String {
    format!("Does not fit: {short} short")
}

pub fn fits_detail(phase: Phase, card: &str, low: &str, high: &str) -> String {
    let peak = format!("The peak is {} on {card}", phase_in(phase));
    if low == high { format!("{peak}.") } else { format!("{peak}; the estimate leaves {low} to {high}.") }
}

pub fn narrow_detail(low: &str, high: &str) -> String {
    format!("The estimate leaves between {low} and {high}: close the browser before you start.")
}

/// Where it fails.
pub fn fails_detail(phase: Phase, tensor: &str, asked: &str, allocated: &str) -> String {
    format!("Fails {} on {tensor}: {asked} more with {allocated} allocated", phase_in(phase))
}

pub const FIGURE_ALLOCATED: &str = "max allocated";
pub const FIGURE_ALLOCATED_HINT: &str = "torch.cuda.max_memory_allocated()";
pub const FIGURE_RESERVED: &str = "max reserved";
pub const FIGURE_RESERVED_HINT: &str = "torch.cuda.max_memory_reserved()";
pub const FIGURE_USED: &str = "card used";
pub const FIGURES: [&str; 5] = [FIGURE_ALLOCATED, FIGURE_RESERVED, FIGURE_USED, FIGURE_CARD, FIGURE_PARAMETERS];
pub const FIGURE_USED_NEEDED: &str = "card needed";
pub const FIGURE_CARD: &str = "card has";
pub const FIGURE_PARAMETERS: &str = "parameters";

pub fn band(low: &str, high: &str) -> String {
    format!("between {low} and {high}")
}

pub const COPY_LINK: &str = "Copy link";
pub const COPY_COMMAND: &str = "Copy command";
pub const COPY_JSON: &str = "Copy JSON";
pub const COPY_MESSAGE: &str = "Copy message";
pub const COPIED: &str = "Copied";
pub const NOT_COPIED: &str = "Not copied";
pub const PYTORCH_SAYS: &str = "PyTorch will say";

// The fixes.
pub const NO_FIXES: &str = "Changes are named here once there is a plan.";
pub const FIXES: &str = "What to change, least harm first";
pub const ROOM: &str = "Room to grow";
pub const NO_ROOM_FOR_MORE: &str = "It fits, and no larger batch_size would.";
pub const APPLY: &str = "Apply";
pub const UNDO: &str = "Undo";
pub const SAME_TRAINING: &str = "same training";
pub const NEARLY_SAME_TRAINING: &str = "nearly the same training";
pub const ANOTHER_MODEL: &str = "another model";

pub fn room_for(larger: u64) -> String {
    format!("The largest batch_size that fits, all else unchanged, is {larger}.")
}

pub fn set_batch(size: u64) -> String {
    format!("Set batch_size {size}")
}

pub fn nothing_fits(card: Option<&str>) -> String {
    match card {
        Some(card) => {
            format!("No change makes it fit on this card. As it is, the smallest card it fits on is the {card}.")
        }
        None => "No change makes it fit on this card, and no card of the table holds it as it is.".to_owned(),
    }
}

pub fn fix_leaves(size: &str) -> String {
    format!("fits, {size} left")
}

pub fn fix_lacks(size: &str) -> String {
    format!("{size} short still")
}

pub fn fix_time(percent: u64) -> String {
    format!("≈ {percent} % of the time")
}

/// The comment on a changed line.
pub fn fix_why(card: &str) -> String {
    format!("fits {card}")
}

pub const fn fix_reason(kind: Kind) -> &'static str {
    kind.reason()
}

/// A change that nanoGPT has no key for.
pub const fn switch(switch: Switch) -> &'static str {
    match switch {
        Switch::DelEvalLogits => DEL_EVAL_LOGITS,
        Switch::ChunkedLoss => "chunked cross-entropy",
        Switch::ActivationCheckpointing => CHECKPOINTING,
        Switch::FlashAttention => "flash attention",
        Switch::Adamw8bit => "8-bit AdamW",
        Switch::ExpandableSegments => "expandable_segments:True",
        Switch::NoOtherProcesses => "close other programs",
    }
}

// The message.
pub const PASTE: &str = "Message, traceback or log";
pub const PASTE_PLACEHOLDER: &str = "Paste the out-of-memory error: the line alone, the whole traceback, or the log. Or drop a file anywhere on this page.";
pub const PASTE_CONFIG: &str = "Config or command, where you have it";
pub const PASTE_CONFIG_PLACEHOLDER: &str =
    "A nanoGPT config.py, or the command. A log that prints its config needs none.";
pub const EXAMPLE: &str = "Show an example";
pub const EXAMPLE_MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total \
    capacity of 11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. \
    Of the allocated memory 6.78 GiB is allocated by PyTorch, and 73.00 MiB is reserved by PyTorch but unallocated.";
pub const EXAMPLE_CONFIG: &str = "batch_size = 64\ngradient_accumulation_steps = 1\n";
pub const NOTHING_PASTED: &str = "What it means stands here as soon as a message is pasted: the tensor, the phase, who \
    holds the card, and what to change. Nothing leaves this page.";
pub const CONFIG_SAYS_MORE: &str =
    "With the run's config, the whole run is simulated: which of these it was, and what to change.";
pub const AGREES_EXACTLY: &str = "Agrees to the printed digit";
pub const AGREES_CLOSELY: &str = "Agrees closely";
pub const AGREES_NOT: &str = "Does not agree with this config";
pub const OPEN_BUDGET: &str = "Open this run in the calculator";
pub const ON_THE_CARD: &str = "On the card,";
pub const OTHERS_AND_CONTEXT: &str = "other programs and CUDA context";
pub const ALLOCATED: &str = "allocated";
pub const UNALLOCATED: &str = "reserved, not allocated";
pub const FREE: &str = "free";
pub const MISSING: &str = "missing";
pub const CANDIDATES: &str = "Tensors of that size";
pub const TO_THE_DIGIT: &str = "to the digit";

pub fn several(n: usize) -> String {
    format!("{n} messages in this text; this is the first, most often the cause.")
}

// The chart.
pub const CHART: &str = "Memory over the run";
pub const CHART_UNIT: &str = "GiB; what repeats is shown once";
pub const CHART_HELP: &str = "Point at a moment, or press the arrow keys, to see what is live. Click keeps it.";
pub const CARD_LINE: &str = "card";
pub const RESERVED_LINE: &str = "reserved by PyTorch";
pub const OTHERS_BAND: &str = "other programs";
pub const CONTEXT_BAND: &str = "CUDA context";
pub const FAILS_HERE: &str = "fails here";
pub const NOT_REACHED: &str = "not reached: what it would need";
/// Each with what it means.
pub const CERTAINTIES: [(Certainty, &str); 3] = [
    (Certainty::Exact, "follows from recorded runs of that kind, to the byte"),
    (Certainty::Measured, "read off a card or a message of one"),
    (Certainty::Estimated, "computed from a rule that fits what was seen"),
];

pub const fn certainty(certainty: Certainty) -> &'static str {
    certainty.name()
}

pub const fn category(category: Category) -> &'static str {
    category.label()
}

/// Whether a phase belongs to an iteration of the training loop.
pub const fn is_in_iteration(phase: Phase) -> bool {
    matches!(
        phase,
        Phase::FirstForward
            | Phase::FirstBackward
            | Phase::FirstOptimizer
            | Phase::SteadyForward
            | Phase::SteadyBackward
            | Phase::SteadyOptimizer
    )
}

/// What a phase outside an iteration belongs to, for the lower row of the axis.
pub const fn stretch(phase: Phase) -> &'static str {
    match phase {
        Phase::EvalFirst | Phase::Eval => "estimate_loss",
        Phase::LaterEvalFirst | Phase::LaterEval => "estimate_loss, later",
        _ => "",
    }
}

/// An iteration on the axis.
pub const fn iteration(index: usize) -> &'static str {
    match index {
        0 => "iter 0",
        1 => "iter 1",
        _ => "later iterations",
    }
}

/// A phase on the axis, within its stretch.
pub const fn phase_short(phase: Phase) -> &'static str {
    match phase {
        Phase::Init => "init",
        Phase::EvalFirst | Phase::LaterEvalFirst => "batch 1",
        Phase::Eval | Phase::LaterEval => "last one",
        Phase::FirstForward | Phase::SteadyForward => "forward",
        Phase::FirstBackward | Phase::SteadyBackward => "backward",
        Phase::FirstOptimizer | Phase::SteadyOptimizer => "step",
        Phase::Rest => "rest",
    }
}

/// The same where there is little room; empty where it has no shorter name.
pub fn tick_short(label: &str) -> &'static str {
    match label {
        "forward" => "fwd",
        "backward" => "bwd",
        "batch 1" => "1st",
        "last one" => "last",
        "iter 0" => "it 0",
        "iter 1" => "it 1",
        "later iterations" => "later",
        "step" => "opt",
        "init" => "init",
        _ if label.starts_with("estimate") => "eval",
        _ => "",
    }
}

/// A phase in the table.
pub const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Init => "init",
        Phase::EvalFirst => "evaluation, first batch",
        Phase::Eval => "evaluation",
        Phase::FirstForward => "first forward",
        Phase::FirstBackward => "first backward",
        Phase::FirstOptimizer => "first optimizer step",
        Phase::LaterEvalFirst => "later evaluation, first batch",
        Phase::LaterEval => "later evaluation",
        Phase::SteadyForward => "forward",
        Phase::SteadyBackward => "backward",
        Phase::SteadyOptimizer => "optimizer step",
        Phase::Rest => "between iterations",
    }
}

/// A phase in a sentence.
pub const fn phase_in(phase: Phase) -> &'static str {
    match phase {
        Phase::Init => "before it starts",
        Phase::EvalFirst => "in the first evaluation batch",
        Phase::Eval => "in evaluation",
        Phase::FirstForward => "in the first forward",
        Phase::FirstBackward => "in the first backward",
        Phase::FirstOptimizer => "in the first optimizer step",
        Phase::LaterEvalFirst => "in a later evaluation's first batch",
        Phase::LaterEval => "in a later evaluation",
        Phase::SteadyForward => "in forward",
        Phase::SteadyBackward => "in backward",
        Phase::SteadyOptimizer => "in the optimizer step",
        Phase::Rest => "between iterations",
    }
}

// The tensors.
pub const LIVE: &str = "Live";
pub const LIVE_AT_FAILURE: &str = "Live when it fails";
pub const LIVE_AT_PEAK: &str = "Live at the peak";
pub const BACK_TO_FAILURE: &str = "Back to the failure";
pub const BACK_TO_PEAK: &str = "Back to the peak";

pub fn live_title(phase: Phase) -> String {
    format!("Live {}", phase_in(phase))
}

pub fn and_more(n: usize, bytes: &str) -> String {
    format!("and {n} more, {bytes}")
}

pub const fn why_alive(lifetime: Lifetime) -> &'static str {
    match lifetime {
        Lifetime::Run => "held for the whole run",
        Lifetime::FromFirstStep => "made by the first optimizer step, then kept",
        Lifetime::UntilZeroGrad => "from backward until zero_grad",
        Lifetime::CastCache => "autocast's copy, until its last use in backward",
        Lifetime::SavedForBackward => "saved in forward because backward needs it",
        Lifetime::ForwardLocal => "a local name of forward still holds it",
        Lifetime::Intermediate => "a step on the way",
        Lifetime::NameInTrainPy => "train.py's name keeps it until the next assignment",
        Lifetime::Scratch => "a kernel's scratch memory, given back at once",
        Lifetime::Batch => "the batch, until the next one is fetched",
    }
}

// The phases.
pub const PHASES: &str = "Phases";
pub const PHASE: &str = "Phase";
pub const PHASES_WOULD_NEED: &str = "Phases, as if there were room";
pub const LIVE_PEAK: &str = "live peak";
pub const PEAK: &str = "peak";
pub const FAILS: &str = "fails";
pub const NOTHING_LEAVES: &str = "Computed in this page; nothing leaves it.";

pub const PROBLEMS: &str = "What was noticed";
pub const SEVERITIES: [&str; 3] = ["note", "warning", "error"];

// The calculator in somebody's page, and the page that writes the lines for it.
pub const EMBED: &str = "Embed";
pub const EMBED_OPEN: &str = "Open in Headroom";
pub const EMBED_TITLE: &str = "The calculator in your own docs";
pub const EMBED_LEAD: &str = "Set up the run your page is about, copy the lines, and paste them where the calculator \
    should stand. Readers change it in place, or open it here with what they changed.";
pub const EMBED_PROMISE: &str = "One script of 3 KB. The calculator loads when a reader comes near it, sets no cookie, \
    stores nothing, and asks for nothing but its own files. Without scripts, readers see the link.";
pub const EMBED_CONFIG: &str = "Config, command or overrides";
pub const EMBED_CONFIG_PLACEHOLDER: &str = "batch_size = 64, one a line, or --batch_size=64 --compile=False";
pub const EMBED_LANGUAGE: &str = "Language";
/// Each with its tag.
pub const EMBED_LANGUAGES: [(&str, &str); 4] = [("en", "English"), ("zh", "中文"), ("ja", "日本語"), ("de", "Deutsch")];
pub const EMBED_LANGUAGE_HINT: &str = "The calculator's own; without it, that of the page around it";
pub const EMBED_THEMES: [(&str, &str); 3] = [("auto", "as the page"), ("light", "light"), ("dark", "dark")];
pub const EMBED_THEME_HINT: &str = "auto looks at the colour behind the calculator and follows the page's own switch";
pub const EMBED_SNIPPET: &str = "Lines for your page";
pub const COPY_SNIPPET: &str = "Copy lines";
pub const EMBED_PREVIEW: &str = "As readers see it";
pub const EMBED_LOCAL: &str = "This page comes from your own machine, and so would the calculator. For readers elsewhere, put \
    Headroom's files on your site and open this page there.";
pub const EMBED_HOW: &str = "Where to paste them";
pub const EMBED_HOW_ONCE: &str = "The script line is needed once a page, however many calculators stand on it.";
/// What makes docs, and what it takes there.
pub const EMBED_HOSTS: [(&str, &str); 4] = [
    ("mdBook", "Into the chapter's Markdown as they are, with an empty line before and after and none between."),
    (
        "MkDocs",
        "Into the page's Markdown as they are. For many pages, name the script once under extra_javascript in mkdocs.yml \
         and leave its line out.",
    ),
    ("Jekyll", "Into the page's Markdown or a layout as they are, with an empty line before and after."),
    (
        "Docusaurus",
        "The script goes into scripts in docusaurus.config.js, as { src, async: true }; the element into the page's MDX.",
    ),
];
pub const EMBED_POLICY: &str = "A site with a Content-Security-Policy allows this address in script-src and frame-src.";

/// The link that stands in for the calculator where no script runs.
pub fn embed_link(card: &str) -> String {
    if card.is_empty() {
        "The GPU memory of this run, computed by Headroom".to_owned()
    } else {
        format!("The GPU memory of this run on {card}, computed by Headroom")
    }
}
