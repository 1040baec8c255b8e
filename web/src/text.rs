//! The words of the page, in the language that is shown: the table's texts said, and which of them belongs to what.

use std::cell::Cell;

pub use headroom_shared::text::*;

use headroom_shared::{gpt::tensors::Lifetime, memory::program::Phase, nanogpt::PastedKind, plan::basis::Certainty};

thread_local! {
    static SHOWN: Cell<Option<&'static Table>> = const { Cell::new(None) };
}

/// Takes a fetched table as the one that is shown. It stays for as long as the page lives: there are four.
pub fn show(packed: &str) {
    SHOWN.set(Some(Box::leak(Box::new(Table::unpacked(packed)))));
}

/// The table that is shown.
pub fn table() -> &'static Table {
    SHOWN.get().unwrap_or_else(table_at_first)
}

/// Nothing is drawn before a table is there.
#[cfg(target_arch = "wasm32")]
fn table_at_first() -> &'static Table {
    static NOTHING: Table = Table::new();
    &NOTHING
}

/// Tests outside a browser read English.
#[cfg(not(target_arch = "wasm32"))]
fn table_at_first() -> &'static Table {
    english()
}

/// A text without arguments.
pub fn t(key: Key) -> &'static str {
    table().word(key)
}

/// A text with its arguments.
pub fn say(text: &Text) -> String {
    table().say(text)
}

/// What the theme switch offers.
pub const THEMES: [Key; 3] = [THEME_AUTO, THEME_LIGHT, THEME_DARK];
/// The pages with their addresses.
pub const PAGE_LINKS: [(Key, &str); 5] = [
    (PAGE_BUDGET, "./"),
    (PAGE_DIAGNOSE, "./diagnose.html"),
    (PAGE_DEMO, "./demo.html"),
    (PAGE_RIG, "./rig.html"),
    (PAGE_EMBED, "./embed.html"),
];
/// What the demo begins with, in the language that its model knows.
pub const DEMO_PROMPT: &str = "Once upon a time";
/// What the field for a message shows as an example.
pub const EXAMPLE_MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total \
    capacity of 11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. \
    Of the allocated memory 6.78 GiB is allocated by PyTorch, and 73.00 MiB is reserved by PyTorch but unallocated.";
/// The config of that run.
pub const EXAMPLE_CONFIG: &str = "batch_size = 64\ngradient_accumulation_steps = 1\n";

/// What a field says of a text that it does not take.
pub fn fault(expected: Key, kept: &str) -> String {
    say(&if kept.is_empty() { not_taken(expected) } else { not_taken_keeps(expected, kept) })
}

/// What a text was taken for.
pub fn read_as(kind: PastedKind, n_keys: usize) -> Text {
    match kind {
        PastedKind::Config => reads_config(n_keys),
        PastedKind::Command => reads_command(n_keys),
        PastedKind::Log => reads_log(n_keys),
        PastedKind::Words => reads_words(n_keys),
    }
}

/// Parts of a link that were left out.
pub fn left_out(parts: &[String], later: Option<u32>) -> Text {
    let names = names(parts.iter().map(String::as_str));
    match (later, parts.is_empty()) {
        (Some(_), true) => LINK_LATER.into(),
        (Some(_), false) => link_later_left_out(names),
        (None, _) => link_left_out(names),
    }
}

/// How sure a figure is, in a word.
pub fn certainty(certainty: Certainty) -> &'static str {
    t(match certainty {
        Certainty::Exact => CERTAINTY_EXACT,
        Certainty::Measured => CERTAINTY_MEASURED,
        Certainty::Estimated => CERTAINTY_ESTIMATED,
    })
}

/// Each with what it means.
pub const CERTAINTIES: [(Certainty, Key); 3] =
    [(Certainty::Exact, MEANS_EXACT), (Certainty::Measured, MEANS_MEASURED), (Certainty::Estimated, MEANS_ESTIMATED)];

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

/// A name on the axis, and the same where there is little room.
pub type Tick = (&'static str, &'static str);

fn tick(long: Key, short: Key) -> Tick {
    (t(long), t(short))
}

/// What a phase outside an iteration belongs to, for the lower row of the axis.
pub fn stretch(phase: Phase) -> Tick {
    match phase {
        Phase::EvalFirst | Phase::Eval => tick(STRETCH_EVAL, STRETCH_EVAL_SHORT),
        Phase::LaterEvalFirst | Phase::LaterEval => tick(STRETCH_LATER_EVAL, STRETCH_EVAL_SHORT),
        _ => ("", ""),
    }
}

/// An iteration on the axis.
pub fn iteration(index: usize) -> Tick {
    match index {
        0 => tick(ITERATION_0, ITERATION_0_SHORT),
        1 => tick(ITERATION_1, ITERATION_1_SHORT),
        _ => tick(LATER_ITERATIONS, LATER_ITERATIONS_SHORT),
    }
}

/// A phase on the axis, within its stretch.
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

/// Why a tensor is alive.
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

/// What a key of nanoGPT is, for those that have a field.
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

/// The themes of an embedded calculator, as its attribute names them.
pub const EMBED_THEMES: [(&str, Key); 3] =
    [("auto", EMBED_THEME_AUTO), ("light", EMBED_THEME_LIGHT), ("dark", EMBED_THEME_DARK)];
/// What makes docs, and where the lines go there.
pub const EMBED_HOSTS: [(&str, Key); 4] =
    [("mdBook", EMBED_MDBOOK), ("MkDocs", EMBED_MKDOCS), ("Jekyll", EMBED_JEKYLL), ("Docusaurus", EMBED_DOCUSAURUS)];
