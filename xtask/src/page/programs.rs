//! The programs of the pages: compiled to WebAssembly in one go, with the JavaScript that wasm-bindgen generates.

use super::Build;
use crate::{
    failure::{Failure, IoContext, Result},
    files, optimize,
    packages::Packages,
    parallel,
    shell::Shell,
};
use std::{
    env, fs, iter,
    path::{Path, PathBuf},
};

/// The target of rustc.
const TARGET: &str = "wasm32-unknown-unknown";

/// A program as cargo compiles it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its name in the HTML.
    pub name: String,
    /// Whether a worker loads it. Its files have no hash in their names, because no HTML names them.
    pub is_worker: bool,
}

/// The two files of a program, in the directory that [`bind`] wrote.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    name: String,
}

/// Compiles every program of the pages. One call per package, so that the linker of one program runs beside another's.
pub fn compile(shell: &Shell, build: Build) -> Result<()> {
    let flags = without_paths(shell, &Packages::read(shell)?);
    for targets in [["--package=headroom-web", "--bins"], ["--package=headroom-demo", "--lib"]] {
        shell
            .cmd("cargo")
            .args(["build", "--offline", "--target", TARGET, "--profile", build.profile()])
            .args(targets)
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", &flags)
            .run("the compiler's message is above")?;
    }
    Ok(())
}

/// Generates the JavaScript of each program, and optimises the programs of pages if `optimizes`.
pub fn bind(shell: &Shell, build: Build, programs: &[Program], optimizes: bool) -> Result<()> {
    parallel::for_each(programs, |program| {
        let folder = folder(shell, program);
        files::remake(&folder)?;
        let compiled = shell.target.join(TARGET).join(build.profile());
        let compiled = compiled.join(format!("{}.wasm", file_stem(program)));
        shell
            .cmd("wasm-bindgen")
            .args(["--target=web", "--no-typescript", &format!("--out-name={}", program.name)])
            .args([&format!("--out-dir={}", folder.display()), &compiled.display().to_string()])
            .run("`cargo xtask help` lists the pinned versions of the tools")?;
        if folder.join("snippets").is_dir() {
            return Err(Failure::new(format!("{} has inline JavaScript, which the build does not copy", program.name)));
        }
        if optimizes && !program.is_worker {
            let files = files_of(shell, program);
            optimize::program(shell, &files.wasm(), &files.script())
        } else {
            Ok(())
        }
    })
}

/// Returns a program's files.
pub fn files_of(shell: &Shell, program: &Program) -> Files {
    Files { folder: folder(shell, program), name: program.name.clone() }
}

impl Files {
    fn wasm(&self) -> PathBuf {
        self.folder.join(format!("{}_bg.wasm", self.name))
    }

    fn script(&self) -> PathBuf {
        self.folder.join(format!("{}.js", self.name))
    }

    /// Copies both files with the hash of their contents in their names, and returns the names of script and program.
    pub fn copy_with_hash(&self, dist: &Path) -> Result<(String, String)> {
        let digest = files::digest_of_contents(&[self.script(), self.wasm()])?;
        let (script, wasm) = (format!("{}-{digest}.js", self.name), format!("{}-{digest}_bg.wasm", self.name));
        let text = read(&self.script())?.replace(&format!("{}_bg.wasm", self.name), &wasm);
        fs::write(dist.join(&script), text).doing(|| format!("write {script}"))?;
        copy(&self.wasm(), &dist.join(&wasm))?;
        Ok((script, wasm))
    }

    /// Copies both files under their own names.
    pub fn copy_plain(&self, dist: &Path) -> Result<()> {
        files::copy_below(&self.folder, dist)
    }
}

fn folder(shell: &Shell, program: &Program) -> PathBuf {
    shell.target.join("xtask").join("programs").join(&program.name)
}

/// Cargo names the file of a library after its crate.
fn file_stem(program: &Program) -> String {
    if program.is_worker { program.name.replace('-', "_") } else { program.name.clone() }
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).doing(|| format!("read {}", file.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).doing(|| format!("copy {}", from.display()))
}

/// Flags that shorten the paths in the program, which names source locations in its failures: without this machine's
/// folders, and `planner/plan.rs` for `shared/planner/src/plan.rs`. The compiler's messages keep their paths.
fn without_paths(shell: &Shell, packages: &Packages) -> String {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let registries = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok()).into_iter().flatten();
    let mut folders: Vec<PathBuf> = registries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.push(shell.root.clone());
    let mut renamed: Vec<(String, String)> =
        folders.iter().map(|folder| (folder.display().to_string(), String::new())).collect();
    // Cargo passes the paths of the workspace's packages relative to its root.
    for folder in packages.folders_behind(packages.of_page(&shell.root)) {
        if let (Ok(path), Some(name)) = (folder.strip_prefix(&shell.root), folder.file_name()) {
            renamed.push((path.join("src").display().to_string(), name.display().to_string()));
        }
    }
    // A path with a space would become two arguments.
    let plain = renamed.iter().filter(|(from, _)| !from.contains(' '));
    let renames = plain.map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    iter::once("--remap-path-scope=macro".to_owned()).chain(renames).collect::<Vec<_>>().join(" ")
}
