//! `cargo xtask kernels`: the CUDA kernels as PTX, which is committed, with what each takes of a card.
//!
//! Whoever builds Headroom then needs no CUDA compiler. `--check` holds what is committed against the sources: by their
//! hashes everywhere, and by compiling and assembling everything again where the compilers can be had.

mod bounds;
mod compilers;
mod manifest;
mod usage;

use crate::{
    args::Args,
    failure::{Doing, Failure, Result},
    files,
    shell::{Shell, note, step},
};
use bounds::Bounds;
use compilers::Compilers;
use manifest::{Manifest, Sources};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};
use usage::Usage;

/// What PTX is assembled for: A100, GeForce 30, GeForce 40, H100 and H200, GeForce 50.
const ARCHITECTURES: [&str; 5] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"];
/// What the newest assembler, a driver's, assembles it for besides: H100 and H200, B200, Jetson Thor, GeForce 50. There
/// nothing may be spilled either; the bounds of registers are of the pinned one.
const NEWEST_ARCHITECTURES: [&str; 4] = ["sm_90", "sm_100", "sm_110", "sm_120"];
/// Every kernel includes it, and nothing else.
const HEADER: &str = "device.cuh";
const FIX: &str = "`cargo xtask kernels` makes them anew; commit kernels/ptx and kernels/cuda/registers.txt with the \
                   sources, and after a merge make them again rather than merge them";
const MEND: &str = "the kernel is to be mended: `cargo xtask kernels` prints what each entry takes";

/// What an entry takes on each architecture, in their order.
type Usages = Vec<(&'static str, Usage)>;

/// One file of CUDA C++, built.
#[derive(Debug)]
struct Built {
    /// The file's name without its ending.
    op: String,
    ptx: String,
    entries: BTreeMap<String, Usages>,
    /// The same by the newest assembler, which the manifest leaves out.
    newest: BTreeMap<String, Usages>,
    /// What the assembler warned of.
    warnings: Vec<String>,
}

/// Where things lie.
#[derive(Debug)]
struct Folders {
    cuda: PathBuf,
    ptx: PathBuf,
}

impl Folders {
    fn of(root: &Path) -> Self {
        Self { cuda: root.join("kernels/cuda"), ptx: root.join("kernels/ptx") }
    }

    fn ptx(&self, op: &str) -> PathBuf {
        self.ptx.join(format!("{op}.ptx"))
    }

    fn manifest(&self) -> PathBuf {
        self.ptx.join("manifest.json")
    }

    fn bounds(&self) -> PathBuf {
        self.cuda.join("registers.txt")
    }
}

/// Builds the kernels, or checks what is committed.
pub fn run(shell: &Shell, mut args: Args) -> Result<()> {
    let check = args.flag("--check");
    args.finish()?;
    if check { self::check(shell) } else { make(shell) }
}

fn make(shell: &Shell) -> Result<()> {
    let folders = Folders::of(&shell.root);
    let sources = Sources::read(&folders.cuda)?;
    let Some(compilers) = Compilers::ensure(shell)? else { return Err(Failure::new(compilers::NONE)) };
    let built = build_all(shell, &compilers, &folders, &sources)?;
    files::clear(&folders.ptx, "ptx")?;
    for kernel in &built {
        write(&folders.ptx(&kernel.op), &kernel.ptx)?;
    }
    write(&folders.manifest(), &Manifest::of(&sources, &built).to_string())?;
    let mut bounds = Bounds::read(&folders.bounds())?;
    bounds.follow(&built);
    write(&folders.bounds(), &bounds.to_string())?;
    print!("{}", usage::table(&built));
    judge(&bounds.findings(&built), MEND)
}

/// Checks what is committed, as far as this machine lets it.
pub fn check(shell: &Shell) -> Result<()> {
    let folders = Folders::of(&shell.root);
    let sources = Sources::read(&folders.cuda)?;
    judge(
        &step("check the hashes of the PTX", "it is committed, and may be of older sources", || {
            manifest::stale(&folders, &sources)
        })?,
        FIX,
    )?;
    let compilers = match Compilers::ensure(shell) {
        Ok(Some(compilers)) => compilers,
        Ok(None) => return skip(compilers::NONE),
        Err(failure) => return skip(&failure.to_string()),
    };
    let built = build_all(shell, &compilers, &folders, &sources)?;
    let mut findings = Vec::new();
    for kernel in &built {
        if fs::read_to_string(folders.ptx(&kernel.op)).ok().as_ref() != Some(&kernel.ptx) {
            findings.push(format!("{}.ptx is not what the compiler makes of its source", kernel.op));
        }
    }
    let manifest = fs::read_to_string(folders.manifest()).doing(|| "read kernels/ptx/manifest.json".into())?;
    if manifest != Manifest::of(&sources, &built).to_string() {
        findings.push("kernels/ptx/manifest.json has other figures than the assembler".into());
    }
    judge(&findings, FIX)?;
    judge(&Bounds::read(&folders.bounds())?.findings(&built), MEND)
}

/// Hashes alone: what a machine without network can do.
#[expect(clippy::unnecessary_wraps, reason = "how a check ends")]
fn skip(why: &str) -> Result<()> {
    note("skipped: compiling and assembling the kernels again, so that hashes alone were checked:");
    for line in why.lines().filter(|line| !line.is_empty()) {
        note(line);
    }
    Ok(())
}

fn judge(findings: &[String], hint: &str) -> Result<()> {
    if findings.is_empty() { Ok(()) } else { Err(Failure::new(findings.join("\n")).hint(hint)) }
}

/// All of them, as many at a time as there are cores.
fn build_all(shell: &Shell, compilers: &Compilers, folders: &Folders, sources: &Sources) -> Result<Vec<Built>> {
    let scratch = shell.target.join("xtask").join("kernels");
    files::remake(&scratch)?;
    let (n_ops, architectures, newest) =
        (sources.ops().len(), ARCHITECTURES.join(", "), NEWEST_ARCHITECTURES.join(", "));
    let what =
        format!("compile {n_ops} kernels, and assemble them for {architectures}, and as newest drivers for {newest}");
    step(&what, "what they take is seen there", || {
        let next = AtomicUsize::new(0);
        let (sender, done) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                let (sender, next, scratch) = (sender.clone(), &next, &scratch);
                scope.spawn(move || {
                    while let Some(op) = sources.ops().get(next.fetch_add(1, Ordering::Relaxed)) {
                        // It is received after all have ended.
                        let _ = sender.send(compilers.build(shell, &folders.cuda, scratch, op));
                    }
                });
            }
        });
        drop(sender);
        let mut built = Vec::new();
        let mut n_failed = 0;
        for result in done {
            match result {
                Ok(kernel) => built.push(kernel),
                Err(failure) => {
                    eprintln!("{failure}\n");
                    n_failed += 1;
                }
            }
        }
        built.sort_by(|first: &Built, second| first.op.cmp(&second.op));
        if n_failed == 0 { Ok(built) } else { Err(Failure::new(format!("{n_failed} kernels do not compile"))) }
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).doing(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `--check` does where there is no compiler, and every other machine does with its tests.
    #[test]
    fn what_is_committed_is_of_these_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
        let folders = Folders::of(root);
        let sources = Sources::read(&folders.cuda).expect("sources");
        assert_eq!(manifest::stale(&folders, &sources).expect("a manifest"), [""; 0], "\n{FIX}");
    }
}
