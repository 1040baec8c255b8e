//! `cargo xtask gpu`: measurements that need a real GPU, as JSON lines in `bench/results`.
//!
//! Steps run one after another, and a failure does not stop the next ones: failures are reported at the end. Each
//! result is a line, written immediately. The limits are computed from all lines. `--pack` collects the programs for a
//! machine without Rust.

mod agreement;
mod ceilings;
mod date;
mod headline;
mod kernels;
mod llmc;
mod nanogpt;
mod nvml;
mod options;
mod pack;
mod programs;
mod readings;
mod results;
mod sanitizer;
mod speed;
mod step;
mod thresholds;
mod training;

use crate::{
    args::Args,
    failure::{Failure, IoContext, Result},
    shell::{Shell, note, step},
};
use options::Options;
use programs::Programs;
use results::{LineWriter, ResultFile};
use serde_json::Value;
use std::{
    fs,
    path::{PathBuf, absolute},
    time::Instant,
};
use step::Step;

/// Returns `xtask`, the path of this program, and the measuring programs that the packages' tests have built, for the test
/// of the whole command.
pub fn of_tests(shell: &Shell, xtask: PathBuf) -> Vec<(&'static str, PathBuf)> {
    let found = [
        ("HEADROOM_OPS", programs::newest_test(shell, "ops")),
        ("HEADROOM_CUDA_OPS", programs::example(shell, "cuda_ops")),
    ];
    let found = found.into_iter().filter_map(|(name, path)| Some((name, path?)));
    [("HEADROOM_XTASK", xtask)].into_iter().chain(found).collect()
}

/// Measures this machine's GPU, or packs the programs that do.
pub fn run(shell: &Shell, mut args: Args) -> Result<()> {
    if let Some(folder) = args.value("--pack")? {
        args.finish()?;
        return pack::run(shell, &absolute(&folder).doing(|| format!("find {folder}"))?);
    }
    let options = Options::read(args)?;
    let folder = options.folder(&shell.root)?;
    let programs = Programs::find(shell, &options)?;
    let doctor = nvml::doctor(shell, &programs.headroom)?;
    fs::create_dir_all(&folder).doing(|| format!("make {}", folder.display()))?;
    let path = folder.join(readings::file_name(&doctor, &date::today()));
    let mut machine = readings::machine(&doctor, &date::today());
    machine["seed"] = options.seed.into();
    machine["tiny"] = options.tiny.into();
    let mut book = ResultFile::open(&path, machine, &options.steps)?;
    let mut failed = Vec::new();
    for &asked in &options.steps {
        let start = Instant::now();
        let mut found = book.found(asked);
        let done = step(asked.name(), asked.why(), || measure(shell, asked, &options, &programs, &doctor, &mut found));
        let failure = done.err().map(|failure| failure.to_string());
        book.end(asked, start.elapsed().as_secs_f64(), failure.as_deref())?;
        failed.extend(failure.map(|failure| format!("{}: {failure}", asked.name())));
    }
    summary(&book, &failed)
}

fn measure(
    shell: &Shell,
    step: Step,
    options: &Options,
    programs: &Programs,
    doctor: &Value,
    found: &mut LineWriter<'_>,
) -> Result<()> {
    let Programs { headroom, ops, cuda_ops } = programs;
    match step {
        Step::Nvml => nvml::measure(shell, headroom, doctor, options.load.as_deref(), found),
        Step::Kernels => kernels::measure(shell, ops, &options.size, options.seed, found),
        Step::Sanitizer => sanitizer::measure(shell, ops, &options.size, options.seed, found),
        Step::Train => headline::measure(shell, headroom, &options.size, doctor, found),
        Step::Ceilings => ceilings::measure(shell, cuda_ops, options.tiny, found),
        Step::Speed => speed::measure(shell, headroom, options, found),
    }
}

/// Prints the results, what is missing, and which limits hold; fails if one does not.
fn summary(book: &ResultFile, failed: &[String]) -> Result<()> {
    let n = |kind: &str, key: &str, value: bool| {
        book.lines().iter().filter(|line| line["kind"] == kind && line[key] == value).count()
    };
    eprintln!("==> summary");
    note(&format!(
        "{} readings present, {} missing with a reason; nvidia-smi agrees on {}, and not on {}",
        n("reading", "present", true),
        n("reading", "present", false),
        n("agreement", "agrees", true),
        n("agreement", "agrees", false),
    ));
    note(&format!(
        "{} tests of kernels pass, {} of them have work on the emulated GPU alone",
        n("kernel_test", "passes", true),
        n("kernel_test", "emulated_alone", true),
    ));
    for line in book.lines().iter().filter(|line| line["available"] == false) {
        let word = |key: &str| line[key].as_str().unwrap_or_default();
        let what = ["tool", "who", "of", "name"].map(word).into_iter().find(|word| !word.is_empty());
        note(&format!("not measured: {} {}: {}", word("kind"), what.unwrap_or_default(), word("reason")));
    }
    let bars = book.bars();
    for bar in &bars {
        let holds = if bar.holds { "holds" } else { "FAILS" };
        note(&format!("{holds}: {}: {} (bar {})", bar.what, bar.value, bar.bar));
    }
    for failure in failed {
        note(&format!("failed: {failure}"));
    }
    println!("{}", book.path().display());
    let n_missed = bars.iter().filter(|bar| !bar.holds).count();
    if n_missed + failed.len() == 0 {
        return Ok(());
    }
    Err(Failure::new(format!("{n_missed} bars do not hold, and {} steps failed", failed.len())))
}
