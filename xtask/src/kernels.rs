//! `cargo xtask kernels`: compiles the CUDA kernels to PTX, which is committed together with each kernel's resource
//! usage.
//!
//! Building Headroom therefore needs no CUDA compiler. `--check` compares the committed files with the sources. It
//! always compares hashes; if the compilers are available it also compiles and assembles everything again.

mod bounds;
mod compilers;
mod manifest;
mod usage;

use crate::{
    args::Args,
    failure::{Failure, IoContext, Result},
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

/// Architectures for which PTX is assembled: A100, GeForce 30, GeForce 40, H100 and H200, GeForce 50.
const ARCHITECTURES: [&str; 5] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"];
/// Architectures for the newest assembler, as in a current driver: H100 and H200, B200, Jetson Thor, GeForce 50. Spills
/// are forbidden there too, and registers are limited.
const NEWEST_ARCHITECTURES: [&str; 4] = ["sm_90", "sm_100", "sm_110", "sm_120"];
/// The only header that kernels include.
const HEADER: &str = "device.cuh";
const FIX: &str = "`cargo xtask kernels` compiles them; commit kernels/ptx and kernels/cuda/registers.txt with the \
                   sources, and after a merge compile again instead of merging them";
const MEND: &str = "correct the kernel: `cargo xtask kernels` prints the resource usage of each entry";

/// The resource usage of an entry on each architecture, in order.
type ResourceUsages = Vec<(&'static str, Usage)>;

/// A compiled CUDA C++ file.
#[derive(Debug)]
struct CompiledKernel {
    /// The file's name without its extension.
    op: String,
    ptx: String,
    entries: BTreeMap<String, ResourceUsages>,
    /// Usage with the newest assembler, which the manifest omits.
    newest: BTreeMap<String, ResourceUsages>,
    /// Warnings of the assembler.
    warnings: Vec<String>,
}

/// Paths of the kernels' directories.
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

/// Compiles the kernels, or checks the committed ones.
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

/// Checks the committed files as far as this machine permits.
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

/// Prints why only hashes were checked, as on a machine without network.
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

/// Compiles all kernels, in parallel on all cores.
fn build_all(
    shell: &Shell,
    compilers: &Compilers,
    folders: &Folders,
    sources: &Sources,
) -> Result<Vec<CompiledKernel>> {
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
                        // The receiver outlives all threads.
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
        built.sort_by(|first: &CompiledKernel, second| first.op.cmp(&second.op));
        if n_failed == 0 { Ok(built) } else { Err(Failure::new(format!("{n_failed} kernels do not compile"))) }
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).doing(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of `--check` that needs no compiler, which all machines run with their tests.
    #[test]
    fn committed_kernels_match_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the workspace");
        let folders = Folders::of(root);
        let sources = Sources::read(&folders.cuda).expect("sources");
        assert_eq!(manifest::stale(&folders, &sources).expect("a manifest"), [""; 0], "\n{FIX}");
    }
}
