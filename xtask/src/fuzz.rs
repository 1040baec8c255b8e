//! `cargo xtask fuzz`: runs each target of `fuzz` over its committed corpus, then for a limited time over inputs that
//! libFuzzer generates.
//!
//! It uses the pinned stable toolchain: the compiler's instrumentation needs only flags. libFuzzer comes as a crate,
//! and its C++ is built by this machine's compiler. The directory has cargo-fuzz's layout, for use with that and a
//! nightly toolchain. Findings are kept under `target`; the corpus is changed only by hand.

use crate::{
    args::Args,
    failure::{Failure, IoContext, Result},
    parallel,
    shell::{Cmd, Shell, note, step},
    tools,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Default time for each target.
const SECONDS: u64 = 60;
/// Time and seed for continuous integration: the seed is fixed so that results depend on the change alone.
pub const IN_CI: [&str; 3] = ["--seconds=10", "--seed=1", "--lint"];
/// The longest input, several times the longest message.
const MAX_INPUT_BYTES: usize = 4096;
/// The time limit of an input. The slowest of the corpus takes less than one second.
const TIMEOUT_SECONDS: u64 = 20;
/// The memory limit: twenty times the observed usage.
const MEMORY_MIB: u64 = 2048;

/// cargo-fuzz's flags: a counter at each edge, the table of their addresses, and the operands of comparisons.
const FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
];

/// Options of the command line.
#[derive(Debug)]
struct Options {
    /// The only target to run; `None` for all.
    target: Option<String>,
    /// The time of each target; 0 for the corpus alone.
    seconds: u64,
    seed: Option<u64>,
    /// Whether clippy checks the targets while it compiles them.
    lints: bool,
    /// The only input to run, in the form that a failure prints.
    input: Option<String>,
}

impl Options {
    fn read(mut args: Args) -> Result<Self> {
        let mut number = |name: &str| -> Result<Option<u64>> {
            let text = args.value(name)?;
            text.map(|text| text.parse().doing(|| format!("read {name} {text}"))).transpose()
        };
        let (seconds, seed) = (number("--seconds")?.unwrap_or(SECONDS), number("--seed")?);
        let (lints, input) = (args.flag("--lint"), args.value("--input")?);
        let target = args.free();
        args.finish()?;
        if input.is_some() && target.is_none() {
            return Err(
                Failure::new("--input needs the target it is for").hint("`cargo xtask fuzz TARGET --input FILE`")
            );
        }
        Ok(Self { target, seconds, seed, lints, input })
    }
}

/// The files of a target.
#[derive(Debug)]
struct Target {
    name: String,
    program: PathBuf,
    /// The committed corpus; never written.
    corpus: PathBuf,
    /// Further inputs found on this machine.
    found: PathBuf,
    /// Inputs that failed.
    failing: PathBuf,
    dictionary: PathBuf,
}

/// Builds the targets and runs them, up to the first input that fails.
pub fn run(shell: &Shell, args: Args) -> Result<()> {
    let options = Options::read(args)?;
    if let Some(reason) = missing(shell) {
        note(&format!("skipped fuzz: {reason}"));
        return Ok(());
    }
    let targets = targets(shell, options.target.as_deref())?;
    if options.lints {
        tools::ensure_lint_components(shell)?;
    }
    step("build the fuzz targets", "instrumented, with every assertion on", || {
        // Clippy compiles the targets alone: their dependencies are members of another workspace.
        let command = cargo(shell, "build");
        let command = if options.lints { tools::compile_with_clippy(command) } else { command };
        command.run("a C++ compiler builds libFuzzer; CXX names another than c++")
    })?;
    if let (Some(input), Some(target)) = (&options.input, targets.first()) {
        return target.over_one(shell, input);
    }
    // libFuzzer uses one core.
    parallel::for_each(&targets, |target| {
        target.over_corpus(shell)?;
        if options.seconds > 0 { target.over_more(shell, &options) } else { Ok(()) }
    })
}

/// Checks the formatting of the targets' own code.
pub fn check_formatting(shell: &Shell) -> Result<()> {
    let manifest = manifest(shell);
    step("check the formatting of fuzz", "cargo fmt", || {
        let command = shell.cmd("cargo").args(["fmt", "--manifest-path", &manifest, "--check"]);
        command.run(&format!("run `cargo fmt --manifest-path {manifest}`"))
    })
}

/// Checks the targets' own code, with the same flags so that shared dependencies are built once.
pub fn lint(shell: &Shell) -> Result<()> {
    if let Some(reason) = missing(shell) {
        note(&format!("skipped clippy fuzz: {reason}"));
        return Ok(());
    }
    step("clippy fuzz", "warnings are errors here", || {
        let command = cargo(shell, "clippy").args(["--quiet", "--no-deps", "--", "--deny", "warnings"]);
        command.run("fix what it names; an exception is `#[expect(lint, reason = \"…\")]`")
    })
}

/// Returns what this machine lacks for fuzzing.
fn missing(shell: &Shell) -> Option<String> {
    if cfg!(windows) {
        return Some("libFuzzer is only tried on Linux and macOS".to_owned());
    }
    let compiler = env::var("CXX").ok().filter(|compiler| !compiler.is_empty()).unwrap_or_else(|| "c++".to_owned());
    let runs = shell.cmd(&compiler).args(["--version"]).read().is_some();
    (!runs).then(|| format!("no C++ compiler to build libFuzzer with: `{compiler}` does not run"))
}

fn manifest(shell: &Shell) -> String {
    shell.root.join("fuzz").join("Cargo.toml").display().to_string()
}

/// Creates a cargo command for the targets' workspace. It names the platform, so that flags do not apply to build
/// scripts and macros.
fn cargo(shell: &Shell, command: &str) -> Cmd {
    let built = built(shell).display().to_string();
    let command = shell.cmd("cargo").args([command, "--manifest-path", &manifest(shell), "--release"]);
    command
        .args(["--target", &host(shell), "--target-dir", &built])
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"))
}

fn built(shell: &Shell) -> PathBuf {
    shell.target.join("fuzz")
}

fn host(shell: &Shell) -> String {
    let printed = shell.cmd("rustc").args(["-vV"]).read().unwrap_or_default();
    printed.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default().to_owned()
}

/// Returns the named target, or all files of `fuzz/fuzz_targets`, so that new targets run automatically.
fn targets(shell: &Shell, only: Option<&str>) -> Result<Vec<Target>> {
    let folder = shell.root.join("fuzz").join("fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).doing(|| format!("list {}", folder.display()))? {
        let path = entry.doing(|| format!("list {}", folder.display()))?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    let all = names.join(", ");
    names.retain(|name| only.is_none_or(|only| only == name));
    if names.is_empty() {
        return Err(Failure::new(format!("no target {}", only.unwrap_or("at all"))).hint(format!("there are {all}")));
    }
    let programs = built(shell).join(host(shell)).join("release");
    let target = |name: String| Target {
        program: programs.join(&name),
        corpus: shell.root.join("fuzz").join("corpus").join(&name),
        found: built(shell).join("found").join(&name),
        failing: built(shell).join("failing").join(&name),
        dictionary: shell.root.join("fuzz").join("dictionaries").join(format!("{name}.txt")),
        name,
    };
    Ok(names.into_iter().map(target).collect())
}

impl Target {
    /// Runs each input of the corpus once.
    fn over_corpus(&self, shell: &Shell) -> Result<()> {
        let n = fs::read_dir(&self.corpus).doing(|| format!("list {}", self.corpus.display()))?.count();
        step(&format!("replay {}", self.name), &format!("{n} kept inputs"), || {
            self.execute(shell, &["-runs=0".into(), self.corpus.display().to_string()]).map(drop)
        })
    }

    /// Runs inputs that libFuzzer generates.
    fn over_more(&self, shell: &Shell, options: &Options) -> Result<()> {
        fs::create_dir_all(&self.found).doing(|| format!("create {}", self.found.display()))?;
        let mut args = vec![format!("-max_total_time={}", options.seconds)];
        args.extend(options.seed.map(|seed| format!("-seed={seed}")));
        args.extend(self.dictionary.is_file().then(|| format!("-dict={}", self.dictionary.display())));
        // libFuzzer writes new inputs to the first directory.
        args.extend([&self.found, &self.corpus].map(|folder| folder.display().to_string()));
        step(&format!("fuzz {}", self.name), &format!("for {} s", options.seconds), || {
            let n = self.execute(shell, &args)?;
            note(&format!("{n} inputs"));
            Ok(())
        })
    }

    fn over_one(&self, shell: &Shell, input: &str) -> Result<()> {
        let file = env::current_dir().unwrap_or_default().join(input);
        step(&format!("run {} over {input}", self.name), "one input", || {
            let (lines, success) = self.command(shell, &[file.display().to_string()]).watch(|_| {})?;
            if success { Ok(()) } else { Err(self.failure(shell, &lines, Some(&file))) }
        })
    }

    /// Runs the target and returns the number of inputs.
    fn execute(&self, shell: &Shell, args: &[String]) -> Result<u64> {
        fs::create_dir_all(&self.failing).doing(|| format!("create {}", self.failing.display()))?;
        let (lines, success) = self.command(shell, args).watch(|_| {})?;
        match executed(&lines) {
            Some(n) if success && n > 0 => Ok(n),
            _ => Err(self.failure(shell, &lines, None)),
        }
    }

    fn command(&self, shell: &Shell, args: &[String]) -> Cmd {
        let limits = [
            format!("-timeout={TIMEOUT_SECONDS}"),
            format!("-rss_limit_mb={MEMORY_MIB}"),
            format!("-max_len={MAX_INPUT_BYTES}"),
            format!("-artifact_prefix={}/", self.failing.display()),
            "-verbosity=0".to_owned(),
            "-print_final_stats=1".to_owned(),
        ];
        shell.cmd(&self.program).args(limits).args(args)
    }

    fn failure(&self, shell: &Shell, lines: &[String], given: Option<&Path>) -> Failure {
        let Some(input) = given.map(Path::to_path_buf).or_else(|| failing_input(lines)) else {
            return Failure::new(format!("the fuzz target {} ended early and names no input", self.name))
                .hint(format!("`cargo xtask fuzz {}` runs it alone", self.name));
        };
        // On a temporary machine the file is lost, but the output remains.
        let bytes = fs::read(&input).unwrap_or_default();
        let shown = input.strip_prefix(&shell.root).unwrap_or(&input).display();
        Failure::new(format!(
            "the fuzz target {} fails on {shown}, {} bytes: b\"{}\"",
            self.name,
            bytes.len(),
            bytes.escape_ascii()
        ))
        .hint(format!(
            "`cargo xtask fuzz {} --input {shown}` runs it again; once that passes, keep it in fuzz/corpus/{}",
            self.name, self.name
        ))
    }
}

/// Returns the path of the input that libFuzzer saved.
fn failing_input(lines: &[String]) -> Option<PathBuf> {
    lines.iter().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| PathBuf::from(path))
}

/// Returns the number of inputs in libFuzzer's final statistics.
fn executed(lines: &[String]) -> Option<u64> {
    let count = lines.iter().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    count.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options> {
        Options::read(Args::new(line.split_whitespace().map(str::to_owned)))
    }

    #[test]
    fn the_command_line_says_how_long_and_over_what() {
        let read = options("oom --seconds 5 --seed=1").expect("options");
        assert_eq!((read.target.as_deref(), read.seconds, read.seed), (Some("oom"), 5, Some(1)));
        assert_eq!(options("").expect("all of them").seconds, SECONDS);
        let in_ci = options(&IN_CI.join(" ")).expect("options");
        assert_eq!((in_ci.seconds, in_ci.seed, in_ci.lints), (10, Some(1), true));
        options("--seconds soon").expect_err("no number");
        options("--input file").expect_err("of which target?");
    }

    #[test]
    fn libfuzzer_output_is_parsed() {
        let lines = ["artifact_prefix='f/'; Test unit written to f/crash-1", "stat::number_of_executed_units: 17"];
        let lines = lines.map(str::to_owned);
        assert_eq!(failing_input(&lines), Some(PathBuf::from("f/crash-1")));
        assert_eq!(executed(&lines), Some(17));
        assert_eq!((failing_input(&[]), executed(&[])), (None, None));
    }

    #[test]
    fn every_target_has_a_corpus_that_fits() {
        let shell = Shell::new().expect("an environment");
        for target in targets(&shell, None).expect("targets") {
            let files = crate::files::files_below(&target.corpus).expect("a corpus");
            assert!(!files.is_empty(), "{}", target.name);
            for file in files {
                let len = fs::read(&file).expect("a file").len();
                assert!(len <= MAX_INPUT_BYTES, "{} would be cut: {len} bytes", file.display());
            }
        }
        targets(&shell, Some("no-such-target")).expect_err("a typing error");
    }
}
