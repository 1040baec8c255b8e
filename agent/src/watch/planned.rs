//! What a run's configuration comes to on the card that it runs on: its plan, and its speed.

use std::ffi::OsString;

use headroom_shared::{
    hardware::reported,
    nanogpt::{PastedKind, Source, from_pasted_text, read},
    plan::{Plan, Request, plan},
    protocol::run::PlanSummary,
    session::{Options, Resolved, resolve},
};

/// The card that a run is planned for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Card {
    /// As its owner calls it.
    Named(String),
    /// As NVML does, with its memory where it says that.
    Measured {
        /// `NVIDIA GeForce RTX 4070`.
        name: String,
        /// Of the whole device, which CUDA gives a little less of.
        total_bytes: Option<u64>,
    },
}

impl Card {
    /// The options of a session on this card.
    pub fn options(&self, world_size: u64) -> Options {
        let options = match self {
            Self::Named(name) => Options { gpu: name.clone(), ..Options::default() },
            Self::Measured { name, total_bytes } => {
                let listed = reported(name, *total_bytes).map(|device| &*device.name);
                Options::on_card(listed, *total_bytes, None)
            }
        };
        Options { world_size, ..options }
    }
}

/// What is known of a run's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// As the calculator reads it.
    pub text: String,
    /// What nanoGPT was given.
    pub sources: Vec<Source>,
    /// Processes of data parallelism.
    pub world_size: u64,
    /// nanoGPT printed it; it was not only named to us.
    pub is_printed: bool,
    /// The last iteration of the run; `None` where that is no number.
    pub max_iters: Option<u64>,
    /// The same where the run printed it, and it is not only nanoGPT's default or what we were told.
    pub printed_max_iters: Option<u64>,
    /// Whether it trains on CUDA at all.
    pub is_on_cuda: bool,
}

impl Config {
    /// What nanoGPT printed, with the command that made it do so, which alone says how many processes there are.
    pub fn printed(command: &[OsString], text: &str) -> Self {
        let text = format!("$ {}\n{text}", line(command));
        let pasted = from_pasted_text("log", &text);
        Self::new(text, pasted.sources, pasted.world_size.unwrap_or(1), true)
    }

    /// What the run's owner named.
    pub fn given(command: &[OsString], sources: Vec<Source>) -> Self {
        let texts = sources.iter().map(|source| match source {
            Source::File { text, .. } => format!("{text}\n"),
            Source::Named { .. } | Source::Override { .. } => String::new(),
        });
        Self::new(texts.collect(), sources, world_size(command), false)
    }

    fn new(text: String, sources: Vec<Source>, world_size: u64, is_printed: bool) -> Self {
        let mut settings = read(&sources);
        let max_iters = settings.get_u64("max_iters");
        let printed_max_iters = max_iters.filter(|_| is_printed && settings.is_set("max_iters"));
        let is_on_cuda = settings.get_str("device").is_none_or(|device| device.starts_with("cuda"));
        Self { text, sources, world_size, is_printed, max_iters, printed_max_iters, is_on_cuda }
    }

    /// The session on a card.
    pub fn resolved(&self, card: &Card) -> Resolved {
        resolve(&self.sources, &card.options(self.world_size))
    }
}

/// Processes that a command starts; 1 where it does not say.
fn world_size(command: &[OsString]) -> u64 {
    let pasted = from_pasted_text("command", &line(command));
    if pasted.kind == PastedKind::Command { pasted.world_size.unwrap_or(1) } else { 1 }
}

/// What a plan says, for history and pages.
pub fn summary(request: Request) -> Option<PlanSummary> {
    let plan = plan(request).ok()?;
    let name = |phase| serde_json::to_value(phase).ok()?.as_str().map(str::to_owned);
    let phases = plan.phases.iter().filter_map(|peak| {
        let on_card = outside_bytes(&plan).saturating_add(peak.max_reserved_bytes);
        Some((name(peak.phase)?, on_card))
    });
    Some(PlanSummary {
        card: plan.request.device.name.to_string(),
        fits: plan.fits,
        peak_bytes: plan.peak.device_used_bytes,
        max_memory_allocated: plan.peak.max_allocated_bytes,
        max_memory_reserved: plan.peak.max_reserved_bytes,
        phases: phases.collect(),
        is_builtin: false,
        recompute: None,
    })
}

/// What the process has on the card beside PyTorch's memory; nobody else is planned for.
fn outside_bytes(plan: &Plan) -> u64 {
    plan.request.context.bytes.saturating_add(plan.request.other_processes_bytes)
}

/// A command as one types it.
pub fn line(command: &[OsString]) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    words.join(" ")
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    // A quote ends the quoting, stands alone, and begins it anew. A line's end would end the command for who reads it.
    format!("'{}'", word.replace('\'', r"'\''").replace(['\n', '\r'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_card_is_found_by_what_it_calls_itself() {
        let measured = |name: &str, gib: Option<u64>| {
            let options = Card::Measured { name: name.to_owned(), total_bytes: gib.map(|gib| gib << 30) }.options(1);
            (options.gpu, options.vram_bytes)
        };
        assert_eq!(measured("NVIDIA GeForce RTX 4070", Some(12)), ("GeForce RTX 4070".to_owned(), None));
        let [small, large] = [8, 12].map(|gib| measured("NVIDIA GeForce RTX 3060", Some(gib)).0);
        assert!(small != large && small.contains('8') && large.contains("12"), "{small}, {large}");
        assert_eq!(measured("NVIDIA GeForce RTX 9999", Some(20)), (String::new(), Some(20 << 30)));
    }

    #[test]
    fn a_config_knows_how_many_processes_there_are() {
        let command = words("torchrun --standalone --nproc_per_node=2 train.py --batch_size=4");
        let printed = Config::printed(&command, "Overriding: batch_size = 4\ntokens per iteration will be: 163,840\n");
        assert_eq!((printed.world_size, printed.sources.len()), (2, 1));
        let request = printed.resolved(&Card::Named("RTX 4070".to_owned())).request.expect("a run");
        // The defaults: 40 micro-steps shared by two, 1024 tokens a sequence.
        assert_eq!(request.train.tokens_per_iteration(request.gpt.block_size()), Some(163_840));
        assert_eq!((printed.max_iters, printed.is_on_cuda), (Some(600_000), true));
        assert_eq!(printed.printed_max_iters, None, "it is nanoGPT's default");
        let said = Config::printed(&command, "Overriding: max_iters = 40\n");
        assert_eq!((said.max_iters, said.printed_max_iters), (Some(40), Some(40)));
        let text = "device = 'cpu'\nmax_iters = 7".to_owned();
        let given = Config::given(&command, vec![Source::File { name: "c.py".into(), text }]);
        assert_eq!((given.world_size, given.is_on_cuda), (2, false));
        assert_eq!((given.max_iters, given.printed_max_iters), (Some(7), None));
        let nothing = Config::printed(&words("python train.py"), "tokens per iteration will be: 491,520\n");
        assert_eq!((nothing.world_size, nothing.sources.len()), (1, 0));
    }

    #[test]
    fn a_plan_s_phases_end_at_its_peak() {
        let config = Config::printed(&words("python train.py"), "Overriding: batch_size = 2\n");
        let request = config.resolved(&Card::Named("RTX 4070".to_owned())).request.expect("a run");
        let summary = summary(request).expect("a plan");
        assert!(summary.fits && summary.max_memory_allocated <= summary.max_memory_reserved);
        assert_eq!(summary.phases.first().map(|(name, _)| name.as_str()), Some("init"));
        assert_eq!(summary.phases.iter().map(|(_, bytes)| *bytes).max(), Some(summary.peak_bytes));
    }

    #[test]
    fn a_command_is_typed_as_a_shell_reads_it() {
        let command: Vec<OsString> = ["python", "it's", "", "--x=a b", "$HOME"].map(OsString::from).to_vec();
        assert_eq!(line(&command), r"python 'it'\''s' '' '--x=a b' '$HOME'");
    }
}
