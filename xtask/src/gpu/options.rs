//! Options of the command line, and sizes of the measurements.

use super::step::Step;
use crate::{
    args::Args,
    failure::{Failure, IoContext, Result},
};
use std::{
    env,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// A model to train.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Number of blocks.
    pub n_layer: u64,
    pub n_head: u64,
    /// Number of channels.
    pub n_embd: u64,
    /// Tokens per sequence.
    pub block_size: u64,
}

impl Model {
    /// Returns n_layer, n_head, n_embd and block_size as arguments of another program.
    pub fn arguments(self) -> [String; 4] {
        let Self { n_layer, n_head, n_embd, block_size } = self;
        [n_layer, n_head, n_embd, block_size].map(|number| number.to_string())
    }
}

/// GPT-2 124M, without biases and dropout as in nanoGPT.
const GPT2: Model = Model { n_layer: 12, n_head: 12, n_embd: 768, block_size: 1024 };
/// A model that a CPU or the emulated GPU trains in seconds.
const SMALL: Model = Model { n_layer: 2, n_head: 2, n_embd: 64, block_size: 32 };

/// Sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The model of the main run.
    pub model: Model,
    /// The tokenizer of the main run's data.
    pub tokenizer: &'static str,
    /// The batch size of the main run.
    pub batch_size: u64,
    /// The iterations of the main run.
    pub iterations: u64,
    /// The model of the comparison with the CPU.
    pub small: Model,
    /// The batch size of the comparison.
    pub small_batch_size: u64,
    /// The iterations of the comparison.
    pub small_iterations: u64,
    /// Batch sizes of the speed measurements.
    pub speeds: [u64; 2],
    /// Iterations of the reported median, after [`Self::warm_up`].
    pub timed: u64,
    /// Iterations that are not counted.
    pub warm_up: u64,
    /// Filter of the kernels' tests by name.
    pub tests: &'static str,
}

/// The full measurements.
pub const FULL: Size = Size {
    model: GPT2,
    tokenizer: "gpt2",
    batch_size: 64,
    iterations: 100,
    small: SMALL,
    small_batch_size: 8,
    small_iterations: 50,
    speeds: [32, 64],
    timed: 20,
    warm_up: 5,
    tests: "",
};
/// Small sizes that check every step within a minute on the emulated GPU. Their figures are meaningless.
pub const TINY: Size = Size {
    model: SMALL,
    tokenizer: "char",
    batch_size: 2,
    iterations: 6,
    small: SMALL,
    small_batch_size: 2,
    small_iterations: 3,
    speeds: [1, 2],
    timed: 2,
    warm_up: 1,
    tests: "losses::",
};

/// Options of the command line.
#[derive(Debug)]
pub struct Options {
    /// A program built elsewhere; without it the one beside this program, or a new build.
    pub headroom: Option<PathBuf>,
    /// The kernels' tests.
    pub ops: Option<PathBuf>,
    /// The benchmark of the kernels.
    pub cuda_ops: Option<PathBuf>,
    /// A command that computes on the GPU.
    pub load: Option<String>,
    /// The directory of the results; `None` for `bench/results`.
    pub out: Option<PathBuf>,
    /// The checkout of nanoGPT.
    pub nanogpt: Option<PathBuf>,
    /// The checkout of llm.c.
    pub llmc: Option<PathBuf>,
    /// The seed of the kernels' inputs.
    pub seed: u64,
    /// The steps to run.
    pub steps: Vec<Step>,
    pub size: Size,
    /// Whether `size` is [`TINY`].
    pub tiny: bool,
}

impl Options {
    /// Parses the command line.
    pub fn read(mut args: Args) -> Result<Self> {
        let mut path = |name: &str| args.value(name)?.map(|path| absolute(&path)).transpose();
        let [headroom, ops, cuda_ops, out, nanogpt, llmc] = [
            path("--headroom")?,
            path("--ops")?,
            path("--cuda-ops")?,
            path("--out")?,
            path("--nanogpt")?,
            path("--llmc")?,
        ];
        let seed = match args.value("--seed")? {
            Some(text) => text.parse().map_err(|_| Failure::new(format!("--seed {text} is not a number")))?,
            None => fresh_seed(),
        };
        let steps = match args.value("--only")? {
            Some(names) => names.split(',').map(step).collect::<Result<Vec<_>>>()?,
            None => Step::ALL.to_vec(),
        };
        let tiny = args.flag("--tiny");
        let load = args.value("--load")?;
        args.finish()?;
        let size = if tiny { TINY } else { FULL };
        Ok(Self { headroom, ops, cuda_ops, load, out, nanogpt, llmc, seed, steps, size, tiny })
    }

    /// Returns the directory of the results. Results of an emulated GPU never go to the repository's.
    pub fn folder(&self, root: &Path) -> Result<PathBuf> {
        let stands_in = ["HEADROOM_CUDA", "HEADROOM_NVML"].into_iter().find(|name| env::var_os(name).is_some());
        match (&self.out, self.tiny, stands_in) {
            (Some(out), ..) => Ok(out.clone()),
            (None, false, None) => Ok(root.join("bench/results")),
            (None, true, _) => Err(Failure::new("--tiny measures nothing of a GPU").hint("--out names another folder")),
            (None, false, Some(name)) => Err(Failure::new(format!("{name} names another library than the driver's"))
                .hint("--out names another folder")),
        }
    }
}

fn absolute(path: &str) -> Result<PathBuf> {
    // Programs run in the workspace, but paths are relative to the user's directory.
    std::path::absolute(path).doing(|| format!("find {path}"))
}

fn step(name: &str) -> Result<Step> {
    let known = Step::ALL.into_iter().find(|step| step.name() == name);
    let names = Step::ALL.map(Step::name).join(", ");
    known.ok_or_else(|| {
        Failure::new(format!("--only: unknown step {name}")).hint(format!("steps, separated by commas: {names}"))
    })
}

/// Returns a different seed each time.
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos()) ^ since.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options> {
        Options::read(Args::new(line.split_whitespace().map(str::to_owned)))
    }

    #[test]
    fn steps_are_named_or_all() {
        assert_eq!(read("--seed 7").expect("options").steps, Step::ALL);
        let options = read("--only speed,nvml --seed=7 --tiny").expect("options");
        assert_eq!((options.steps, options.seed, options.tiny), (vec![Step::Speed, Step::Nvml], 7, true));
        read("--only sped").expect_err("no step");
        read("--seed x").expect_err("no number");
    }

    #[test]
    fn unmeasured_lines_stay_out_of_results() {
        read("--tiny").expect("options").folder(Path::new("/here")).expect_err("it needs a folder");
        let named = read("--tiny --out /there").expect("options");
        assert_eq!(named.folder(Path::new("/here")).expect("a folder"), Path::new("/there"));
    }
}
