//! What the command line asks for, and how much is measured.

use super::step::Step;
use crate::{
    args::Args,
    failure::{Doing, Failure, Result},
};
use std::{
    env,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// A model that is trained.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Blocks.
    pub n_layer: u64,
    /// Heads.
    pub n_head: u64,
    /// Channels.
    pub n_embd: u64,
    /// Tokens a sequence.
    pub block_size: u64,
}

/// GPT-2 124M, without biases and dropout as nanoGPT trains it.
const GPT2: Model = Model { n_layer: 12, n_head: 12, n_embd: 768, block_size: 1024 };
/// What a CPU trains in seconds, and the emulated card too.
const SMALL: Model = Model { n_layer: 2, n_head: 2, n_embd: 64, block_size: 32 };

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The headline's.
    pub model: Model,
    /// What its text is cut into.
    pub tokenizer: &'static str,
    /// Its micro-batch.
    pub batch_size: u64,
    /// Its iterations.
    pub iterations: u64,
    /// What the run beside the CPU's has.
    pub small: Model,
    /// Its micro-batch.
    pub small_batch_size: u64,
    /// Its iterations.
    pub small_iterations: u64,
    /// Micro-batches whose speed is measured.
    pub speeds: [u64; 2],
    /// Iterations of which the median is told, after [`Self::warm_up`].
    pub timed: u64,
    /// Iterations that are not counted.
    pub warm_up: u64,
    /// Of the kernels' tests, those whose name contains it.
    pub tests: &'static str,
}

/// The issue's.
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
/// What shows in a minute, on the emulated card, that every step still works. No figure of it is of a card.
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

/// The command line.
#[derive(Debug)]
pub struct Options {
    /// Programs that were built elsewhere; else those beside this one, or what is built now.
    pub headroom: Option<PathBuf>,
    /// The kernels' tests.
    pub ops: Option<PathBuf>,
    /// What times kernels.
    pub cuda_ops: Option<PathBuf>,
    /// A command that computes on the card.
    pub load: Option<String>,
    /// Where lines go; none for `bench/results`.
    pub out: Option<PathBuf>,
    /// nanoGPT's checkout.
    pub nanogpt: Option<PathBuf>,
    /// llm.c's.
    pub llmc: Option<PathBuf>,
    /// What kernels' inputs are made of.
    pub seed: u64,
    /// The steps.
    pub steps: Vec<Step>,
    /// How much.
    pub size: Size,
    /// Whether that is [`TINY`].
    pub tiny: bool,
}

impl Options {
    /// Reads it.
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
            Some(text) => text.parse().map_err(|_| Failure::new(format!("--seed {text} is no number")))?,
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

    /// Where lines go. What no card measured never comes into the repository's results.
    pub fn folder(&self, root: &Path) -> Result<PathBuf> {
        let stands_in = ["HEADROOM_CUDA", "HEADROOM_NVML"].into_iter().find(|name| env::var_os(name).is_some());
        match (&self.out, self.tiny, stands_in) {
            (Some(out), ..) => Ok(out.clone()),
            (None, false, None) => Ok(root.join("bench/results")),
            (None, true, _) => {
                Err(Failure::new("--tiny measures nothing of a card").hint("--out names another folder"))
            }
            (None, false, Some(name)) => Err(Failure::new(format!("{name} names another library than the driver's"))
                .hint("--out names another folder")),
        }
    }
}

fn absolute(path: &str) -> Result<PathBuf> {
    // Programs are started in the workspace, and a path is meant from where the person is.
    std::path::absolute(path).doing(|| format!("find {path}"))
}

fn step(name: &str) -> Result<Step> {
    let known = Step::ALL.into_iter().find(|step| step.name() == name);
    let names = Step::ALL.map(Step::name).join(", ");
    known.ok_or_else(|| Failure::new(format!("--only {name} is no step")).hint(format!("some of {names}, with commas")))
}

/// Another one each time.
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
    fn what_no_card_measured_stays_out_of_the_results() {
        read("--tiny").expect("options").folder(Path::new("/here")).expect_err("it needs a folder");
        let named = read("--tiny --out /there").expect("options");
        assert_eq!(named.folder(Path::new("/here")).expect("a folder"), Path::new("/there"));
    }
}
