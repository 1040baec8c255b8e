//! Kills a process that saves after every iteration, at random moments. Every reported checkpoint must survive, and
//! equal that of an uninterrupted run bit for bit.
//!
//! This does not simulate a power failure, as the page cache outlives a process. For that case the file and its
//! directory are synchronised before and after the rename.

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use headroom_harness::{child_process, repetitions};
use headroom_kernels::rng::Stream;
use headroom_planner::gpt::GptShape;

use super::{
    super::{Checkpoint, CheckpointChoice, CheckpointError, Store, chosen, load, load_meta},
    assert_same, names,
    trainer::Trainer,
};

/// Number of kills, and that of a full run.
const N_KILLS: (u32, u32) = (60, 200);
/// Exclusive limit of completed iterations before the kill.
const MAX_FINISHED: u64 = 4;
/// Bounds a child whose parent is gone.
const MAX_ITERS: u64 = 100_000;
/// Environment variable with the directory of the process to kill.
const TRAINS_INTO: &str = "HEADROOM_TEST_TRAINS_INTO";

const SHAPE: GptShape =
    GptShape { n_layer: 1, n_head: 2, n_embd: 32, block_size: 8, vocab_size: 32, dropout: 0.1, bias: true };

#[test]
#[ignore = "the child process of kill_9_at_any_moment_loses_no_checkpoint"]
fn child_that_trains() {
    let dir = env::var_os(TRAINS_INTO).expect("its parent sets it");
    let dir = Path::new(&dir);
    let store = Store::open(dir).expect("a folder");
    let mut trainer =
        if store.has_checkpoint() { Trainer::resumed(load(dir).expect("a checkpoint")) } else { Trainer::new(SHAPE) };
    println!("\nready");
    for _ in 0..MAX_ITERS {
        let loss = trainer.step();
        let checkpoint = evaluated(&trainer);
        store.save(&checkpoint.meta, checkpoint.tensors()).expect("space");
        println!("\nsaved {} {}", checkpoint.meta.state.iter_num, loss.to_bits());
    }
}

/// Validation loss of an iteration: decreasing, with fluctuations.
fn val_loss(iter_num: u64) -> f64 {
    let noise = u32::try_from(iter_num * 7919 % 97).expect("small");
    1e6 / f64::from(u32::try_from(iter_num).expect("small")) + f64::from(noise) * 100.0
}

/// Checkpoint of a trainer that evaluates at two of three iterations.
fn evaluated(trainer: &Trainer) -> Checkpoint {
    let mut checkpoint = trainer.checkpoint();
    let iter_num = checkpoint.meta.state.iter_num;
    checkpoint.meta.state.val_loss = (!iter_num.is_multiple_of(3)).then(|| val_loss(iter_num));
    checkpoint
}

/// Best evaluated iteration among those up to `iter_num`.
fn best(iter_num: u64) -> Option<u64> {
    (1..=iter_num).filter(|iter_num| !iter_num.is_multiple_of(3)).min_by(|a, b| val_loss(*a).total_cmp(&val_loss(*b)))
}

fn child(dir: &Path) -> Child {
    let mut command = child_process(module_path!(), "child_that_trains");
    command.env(TRAINS_INTO, dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a process")
}

/// The same run without interruptions.
struct UninterruptedRun {
    trainer: Trainer,
    /// Losses by iteration, from 0.
    losses: Vec<u32>,
}

impl UninterruptedRun {
    fn at(&mut self, iter_num: u64) -> Checkpoint {
        assert!(iter_num >= self.losses.len() as u64, "the run went back to iteration {iter_num}");
        while (self.losses.len() as u64) < iter_num {
            self.losses.push(self.trainer.step().to_bits());
        }
        evaluated(&self.trainer)
    }
}

#[test]
fn kill_9_at_any_moment_loses_no_checkpoint() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut undisturbed = UninterruptedRun { trainer: Trainer::new(SHAPE), losses: Vec::new() };
    let mut moments = Stream::new(9, 9);
    let (mut last_said, mut n_unfinished, mut n_apart) = (0, 0, 0);
    let mut said: Vec<(u64, u32)> = Vec::new();
    // Duration of an iteration with its checkpoint, so that a kill can hit any part of it.
    let mut iteration = Duration::from_millis(10);
    let n_kills = u64::from(repetitions(N_KILLS.0, N_KILLS.1));
    for kill in 0..n_kills {
        let mut child = child(dir.path());
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut of_this = Vec::new();
        // Every tenth is killed during its start, the others while training.
        if kill % 10 != 0 {
            let is_ready = lines.find(|line| line.as_ref().is_ok_and(|line| line == "ready"));
            assert!(is_ready.is_some(), "the child ended before it trained");
            for _ in 0..moments.below(MAX_FINISHED) {
                let start = Instant::now();
                of_this.extend(lines.by_ref().map_while(Result::ok).find_map(|line| saved(&line)));
                iteration = start.elapsed();
            }
        }
        thread::sleep(iteration.mul_f64(1.2 * moments.uniform()));
        child.kill().expect("it runs");
        child.wait().expect("it ended");
        of_this.extend(lines.map_while(Result::ok).filter_map(|line| saved(&line)));
        last_said = of_this.last().map_or(last_said, |(iter_num, _)| *iter_num);
        said.extend(of_this);
        n_unfinished += usize::from(names(dir.path()).iter().any(|name| name.ends_with(".tmp")));
        match load(dir.path()) {
            Ok(found) => {
                let iter_num = found.meta.state.iter_num;
                // The kill may fall between the rename and its report.
                assert!(
                    (last_said..=last_said + 1).contains(&iter_num),
                    "the file has iteration {iter_num}, but {last_said} was reported"
                );
                assert_same(&found, &undisturbed.at(iter_num));
                let of_best =
                    load_meta(&chosen(dir.path(), CheckpointChoice::Best).expect("it is there")).expect("it is whole");
                let of_best = of_best.state.iter_num;
                // Before the first evaluation there is only one checkpoint.
                assert_eq!(of_best, best(iter_num).unwrap_or(iter_num), "the best one after iteration {iter_num}");
                n_apart += u64::from(of_best != iter_num);
                last_said = iter_num;
            }
            Err(CheckpointError::NotFound { .. }) if last_said == 0 => {}
            Err(error) => panic!("kill {kill}: {error}"),
        }
    }
    assert!(last_said > n_kills, "{last_said} iterations are too few to have been disturbed");
    assert!(n_unfinished > 0, "no kill interrupted a write");
    assert!(n_apart > n_kills / 4 && n_apart < n_kills, "{n_apart} times the best was not the last");
    for (iter_num, loss) in said {
        let idx = usize::try_from(iter_num - 1).expect("small");
        assert_eq!(undisturbed.losses[idx], loss, "the loss of iteration {iter_num}");
    }
    println!("{n_kills} kills, {n_unfinished} of them within a write; {last_said} iterations");
}

/// Parses a complete line: an iteration and its loss.
fn saved(line: &str) -> Option<(u64, u32)> {
    let (iter_num, loss) = line.strip_prefix("saved ")?.split_once(' ')?;
    Some((iter_num.parse().ok()?, loss.parse().ok()?))
}
