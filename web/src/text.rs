//! The page's texts in the selected language, and the mapping from values to texts.

use std::cell::Cell;

pub use headroom_text::*;

use headroom_planner::{gpt::tensors::Lifetime, memory::program::Phase, nanogpt::PastedKind, plan::basis::Certainty};
use headroom_protocol::message::Message;

thread_local! {
    static SHOWN: Cell<Option<&'static Table>> = const { Cell::new(None) };
}

/// Sets the table of texts. A table is leaked for the lifetime of the page; there are at most four.
pub fn show(packed: &str) {
    SHOWN.set(Some(Box::leak(Box::new(Table::unpacked(packed)))));
}

/// Returns the current table of texts.
pub fn table() -> &'static Table {
    SHOWN.get().unwrap_or_else(table_at_first)
}

/// Returns an empty table, because nothing is drawn before a table is loaded.
#[cfg(target_arch = "wasm32")]
fn table_at_first() -> &'static Table {
    static NOTHING: Table = Table::new();
    &NOTHING
}

/// Returns the English table, for tests outside a browser.
#[cfg(not(target_arch = "wasm32"))]
fn table_at_first() -> &'static Table {
    headroom_languages::english()
}

/// Returns a text without arguments.
pub fn t(key: Key) -> &'static str {
    table().word(key)
}

/// Returns a text with its arguments filled in.
pub fn say(text: &Text) -> String {
    table().say(text)
}

/// Returns an agent's message in the current language.
pub fn message(message: &Message) -> String {
    message.render(table())
}

/// The options of the theme switch.
pub const THEMES: [Key; 3] = [THEME_AUTO, THEME_LIGHT, THEME_DARK];
/// The pages with their addresses.
pub const PAGE_LINKS: [(Key, &str); 8] = [
    (PAGE_BUDGET, "./calculator.html"),
    (PAGE_DIAGNOSE, "./diagnose.html"),
    (PAGE_GPUS, "./gpus.html"),
    (PAGE_COMPARE, "./compare.html"),
    (PAGE_DEMO, "./demo.html"),
    (PAGE_RIG, "./rig.html"),
    (PAGE_EMBED, "./embed.html"),
    (PAGE_DOCS, "./docs/"),
];
/// The demo's default prompt, in the language of its model.
pub const DEMO_PROMPT: &str = "Once upon a time";
/// The example of an out-of-memory message.
pub const EXAMPLE_MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total \
    capacity of 11.69 GiB of which 2.49 GiB is free. Including non-PyTorch memory, this process has 7.22 GiB memory in use. \
    Of the allocated memory 6.78 GiB is allocated by PyTorch, and 261.11 MiB is reserved by PyTorch but unallocated.";
/// The config of the run in [`EXAMPLE_MESSAGE`].
pub const EXAMPLE_CONFIG: &str = "batch_size = 64\ngradient_accumulation_steps = 1\n";

/// The sentence for an invalid text of a field.
pub fn fault(expected: Key) -> String {
    say(&not_taken(expected))
}

/// Describes the detected format of a text.
pub fn read_as(kind: PastedKind, n_keys: usize) -> Text {
    match kind {
        PastedKind::Config => reads_config(n_keys),
        PastedKind::Command => reads_command(n_keys),
        PastedKind::Log => reads_log(n_keys),
        PastedKind::Words => reads_words(n_keys),
        PastedKind::Json => reads_json(n_keys),
        // The format's problem already describes it.
        PastedKind::Unsupported => verbatim(""),
    }
}

/// Describes the parts of a link that were ignored. `later` is the link's version if this program is older than the
/// link.
pub fn left_out(parts: &[String], later: Option<u32>) -> Text {
    let names = names(parts.iter().map(String::as_str));
    match (later, parts.is_empty()) {
        (Some(_), true) => LINK_LATER.into(),
        (Some(_), false) => link_later_left_out(names),
        (None, _) => link_left_out(names),
    }
}

/// Names the certainty of a figure.
pub fn certainty(certainty: Certainty) -> &'static str {
    t(match certainty {
        Certainty::Exact => CERTAINTY_EXACT,
        Certainty::Measured => CERTAINTY_MEASURED,
        Certainty::Estimated => CERTAINTY_ESTIMATED,
    })
}

/// Every certainty with its explanation.
pub const CERTAINTIES: [(Certainty, Key); 3] =
    [(Certainty::Exact, MEANS_EXACT), (Certainty::Measured, MEANS_MEASURED), (Certainty::Estimated, MEANS_ESTIMATED)];

/// Reports whether a phase belongs to an iteration of the training loop.
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

/// A label on the axis in a long and a short form.
pub type Tick = (&'static str, &'static str);

fn tick(long: Key, short: Key) -> Tick {
    (t(long), t(short))
}

/// Returns the label of a phase outside an iteration, for the lower row of the axis.
pub fn stretch(phase: Phase) -> Tick {
    match phase {
        Phase::EvalFirst | Phase::Eval => tick(STRETCH_EVAL, STRETCH_EVAL_SHORT),
        Phase::LaterEvalFirst | Phase::LaterEval => tick(STRETCH_LATER_EVAL, STRETCH_EVAL_SHORT),
        _ => ("", ""),
    }
}

/// Returns the label of an iteration on the axis.
pub fn iteration(index: usize) -> Tick {
    match index {
        0 => tick(ITERATION_0, ITERATION_0_SHORT),
        1 => tick(ITERATION_1, ITERATION_1_SHORT),
        _ => tick(LATER_ITERATIONS, LATER_ITERATIONS_SHORT),
    }
}

/// Returns the label of a phase on the axis, within its group.
pub fn phase_tick(phase: Phase) -> Tick {
    match phase {
        Phase::Init => tick(TICK_INIT, TICK_INIT),
        Phase::EvalFirst | Phase::LaterEvalFirst => tick(TICK_FIRST_BATCH, TICK_FIRST_BATCH_SHORT),
        Phase::Eval | Phase::LaterEval => tick(TICK_LAST_BATCH, TICK_LAST_BATCH_SHORT),
        Phase::FirstForward | Phase::SteadyForward => tick(TICK_FORWARD, TICK_FORWARD_SHORT),
        Phase::FirstBackward | Phase::SteadyBackward => tick(TICK_BACKWARD, TICK_BACKWARD_SHORT),
        Phase::FirstOptimizer | Phase::SteadyOptimizer => tick(TICK_STEP, TICK_STEP_SHORT),
        Phase::Rest => (t(TICK_REST), ""),
    }
}

/// Explains why a tensor is alive.
pub fn why_alive(lifetime: Lifetime) -> &'static str {
    t(match lifetime {
        Lifetime::Run => ALIVE_RUN,
        Lifetime::FromFirstStep => ALIVE_FROM_FIRST_STEP,
        Lifetime::UntilZeroGrad => ALIVE_UNTIL_ZERO_GRAD,
        Lifetime::CastCache => ALIVE_CAST_CACHE,
        Lifetime::SavedForBackward => ALIVE_SAVED,
        Lifetime::ForwardLocal => ALIVE_FORWARD_LOCAL,
        Lifetime::Intermediate => ALIVE_INTERMEDIATE,
        Lifetime::NameInTrainPy => ALIVE_NAME,
        Lifetime::Scratch => ALIVE_SCRATCH,
        Lifetime::Batch => ALIVE_BATCH,
    })
}

/// Returns the description of a nanoGPT key, or an empty string if the key has no field.
pub fn doc(key: &str) -> &'static str {
    let docs = [
        ("batch_size", DOC_BATCH_SIZE),
        ("gradient_accumulation_steps", DOC_GRADIENT_ACCUMULATION_STEPS),
        ("block_size", DOC_BLOCK_SIZE),
        ("n_layer", DOC_N_LAYER),
        ("n_head", DOC_N_HEAD),
        ("n_embd", DOC_N_EMBD),
        ("vocab_size", DOC_VOCAB_SIZE),
        ("dropout", DOC_DROPOUT),
        ("bias", DOC_BIAS),
        ("dtype", DOC_DTYPE),
        ("compile", DOC_COMPILE),
        ("eval_iters", DOC_EVAL_ITERS),
        ("eval_interval", DOC_EVAL_INTERVAL),
        ("max_iters", DOC_MAX_ITERS),
        ("eval_batch_size", DOC_EVAL_BATCH_SIZE),
    ];
    docs.iter().find(|(name, _)| *name == key).map_or("", |(_, key)| t(*key))
}

/// The themes of an embedded calculator, with the attribute's values.
pub const EMBED_THEMES: [(&str, Key); 3] =
    [("auto", EMBED_THEME_AUTO), ("light", EMBED_THEME_LIGHT), ("dark", EMBED_THEME_DARK)];
/// Documentation generators, with instructions where to put the HTML.
pub const EMBED_HOSTS: [(&str, Key); 4] =
    [("mdBook", EMBED_MDBOOK), ("MkDocs", EMBED_MKDOCS), ("Jekyll", EMBED_JEKYLL), ("Docusaurus", EMBED_DOCUSAURUS)];
