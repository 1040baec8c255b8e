//! Plan and speed of a run's config on the GPU that it runs on.

use std::ffi::OsString;

use headroom_planner::{
    hardware::reported,
    nanogpt::{PastedKind, Source, from_pasted_text, read},
    plan::{Plan, Request, plan},
    session::{Options, ResolvedSession, resolve},
};
use headroom_protocol::run::PlanSummary;

/// GPU that a run is planned for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedGpu {
    /// Name given by the user.
    Named(String),
    /// GPU as NVML reports it.
    Measured {
        /// Name, such as `NVIDIA GeForce RTX 4070`.
        name: String,
        /// Memory of the whole device, if known. CUDA offers slightly less.
        total_bytes: Option<u64>,
    },
}

impl PlannedGpu {
    /// Options of a planning session for this GPU.
    pub fn options(&self, world_size: u64) -> Options {
        let options = match self {
            Self::Named(name) => Options { gpu: name.clone(), ..Options::default() },
            Self::Measured { name, total_bytes } => {
                let listed = reported(name, *total_bytes).map(|device| &*device.name);
                Options::on_gpu(listed, *total_bytes, None)
            }
        };
        Options { world_size, ..options }
    }
}

/// Known config of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Text that the calculator can parse.
    pub text: String,
    /// Sources of nanoGPT's keys.
    pub sources: Vec<Source>,
    /// Number of data-parallel processes.
    pub world_size: u64,
    /// Whether nanoGPT printed the config, rather than the user naming it.
    pub is_printed: bool,
    /// Last iteration of the run. `None` if the value is not a number.
    pub max_iters: Option<u64>,
    /// Last iteration as printed by the run, neither nanoGPT's default nor named by the user.
    pub printed_max_iters: Option<u64>,
    /// Whether the run trains on CUDA.
    pub is_on_cuda: bool,
}

impl Config {
    /// Config from nanoGPT's output. The command adds the number of processes.
    pub fn printed(command: &[OsString], text: &str) -> Self {
        let text = format!("$ {}\n{text}", line(command));
        let pasted = from_pasted_text("log", &text);
        Self::new(text, pasted.sources, pasted.world_size.unwrap_or(1), true)
    }

    /// Config that the user named.
    pub fn given(command: &[OsString], sources: Vec<Source>) -> Self {
        let texts = sources.iter().map(|source| match source {
            Source::File { text, .. } => format!("{text}\n"),
            Source::Named { .. } | Source::Override { .. } | Source::Printed { .. } => String::new(),
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

    /// Resolves the config for a GPU.
    pub fn resolved(&self, gpu: &PlannedGpu) -> ResolvedSession {
        resolve(&self.sources, &gpu.options(self.world_size))
    }
}

/// Number of processes that a command starts. Default: 1.
fn world_size(command: &[OsString]) -> u64 {
    let pasted = from_pasted_text("command", &line(command));
    // A copy of train.py may have another name.
    let is_command = matches!(pasted.kind, PastedKind::Command | PastedKind::Unsupported);
    pasted.world_size.filter(|_| is_command).unwrap_or(1)
}

/// Summary of a plan, for the history and the page.
pub fn summary(request: Request) -> Option<PlanSummary> {
    let plan = plan(request).ok()?;
    let name = |phase| serde_json::to_value(phase).ok()?.as_str().map(str::to_owned);
    let phases = plan.phases.iter().filter_map(|peak| {
        let on_gpu = outside_bytes(&plan).saturating_add(peak.max_reserved_bytes);
        Some((name(peak.phase)?, on_gpu))
    });
    Some(PlanSummary {
        gpu: plan.request.machine.device.name.to_string(),
        fits: plan.fits,
        peak_bytes: plan.peak.device_used_bytes,
        max_memory_allocated: plan.peak.max_allocated_bytes,
        max_memory_reserved: plan.peak.max_reserved_bytes,
        phases: phases.collect(),
        is_builtin: false,
        recompute: None,
    })
}

/// Memory on the GPU besides PyTorch's. The plan includes no other processes.
fn outside_bytes(plan: &Plan) -> u64 {
    plan.request.machine.context.bytes.saturating_add(plan.request.machine.other_processes_bytes)
}

/// A command as typed in a shell.
pub fn line(command: &[OsString]) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    words.join(" ")
}

/// A word quoted for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    // A quote closes the quoting, appears escaped, and reopens it. Newlines become spaces, as they would end the
    // command.
    format!("'{}'", word.replace('\'', r"'\''").replace(['\n', '\r'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_gpu_is_found_by_what_it_calls_itself() {
        let measured = |name: &str, gib: Option<u64>| {
            let options =
                PlannedGpu::Measured { name: name.to_owned(), total_bytes: gib.map(|gib| gib << 30) }.options(1);
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
        let request = printed.resolved(&PlannedGpu::Named("RTX 4070".to_owned())).request.expect("a run");
        // The defaults: 40 micro-steps shared by two processes, 1024 tokens per sequence.
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
        let request = config.resolved(&PlannedGpu::Named("RTX 4070".to_owned())).request.expect("a run");
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
