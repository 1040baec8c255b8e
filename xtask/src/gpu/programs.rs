//! The measuring programs: those beside this one in a pack, otherwise new builds.

use super::options::Options;
use crate::{
    failure::{Failure, IoContext, Result},
    shell::{Shell, step},
};
use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Their names, both in a pack and for cargo.
pub const NAMES: [&str; 4] = ["headroom", "xtask", "ops", "cuda_ops"];

/// Paths of the programs.
#[derive(Debug)]
pub struct Programs {
    pub headroom: PathBuf,
    /// The tests of every op.
    pub ops: PathBuf,
    /// The benchmark of every op.
    pub cuda_ops: PathBuf,
}

impl Programs {
    /// Finds the programs, or builds those that are missing.
    pub fn find(shell: &Shell, options: &Options) -> Result<Self> {
        let given = [("headroom", &options.headroom), ("ops", &options.ops), ("cuda_ops", &options.cuda_ops)];
        let mut found = given.map(|(name, given)| given.clone().or_else(|| beside(name)));
        if found.iter().any(Option::is_none) {
            let built = build(shell)?;
            for ((name, _), found) in given.iter().zip(&mut found) {
                *found = found
                    .take()
                    .or_else(|| built.iter().find(|(built, _)| built == name).map(|(_, path)| path.clone()));
            }
        }
        let [Some(headroom), Some(ops), Some(cuda_ops)] = found else {
            return Err(Failure::new("cargo built not all of headroom, ops and cuda_ops"));
        };
        Ok(Self { headroom, ops, cuda_ops })
    }
}

/// Returns a program in this one's directory, if that is a pack, which has the tests too.
fn beside(name: &str) -> Option<PathBuf> {
    let folder = env::current_exe().ok()?.parent()?.to_owned();
    let path = folder.join(name);
    (folder.join("ops").is_file() && path.is_file()).then_some(path)
}

/// Returns cargo's newest unoptimised test program of this name: `ops-` and a hash, without an extension.
pub fn newest_test(shell: &Shell, name: &str) -> Option<PathBuf> {
    let files = fs::read_dir(shell.target.join("debug/deps")).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let tests = files.filter(|path| {
        let hash = path.file_name().and_then(|file| file.to_str()?.strip_prefix(name)?.strip_prefix('-'));
        hash.is_some_and(|hash| hash.chars().all(|char| char.is_ascii_hexdigit()))
    });
    tests.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
}

/// Returns cargo's unoptimised example of this name.
pub fn example(shell: &Shell, name: &str) -> Option<PathBuf> {
    Some(shell.target.join("debug/examples").join(name)).filter(|path| path.is_file())
}

/// Builds all of [`NAMES`] in release mode, and returns their paths.
pub fn build(shell: &Shell) -> Result<Vec<(String, PathBuf)>> {
    let packages = ["headroom-agent", "xtask", "headroom-fake-cuda", "headroom-kernels"];
    let targets = ["--bin", "headroom", "--bin", "xtask", "--test", "ops", "--example", "cuda_ops"];
    step("build headroom, the kernels' tests and what times them", "as they ship; many minutes from nothing", || {
        let command = shell.cmd("cargo").args(["build", "--release", "--message-format=json-render-diagnostics"]);
        let command = command.args(packages.iter().flat_map(|name| ["--package", name])).args(targets);
        let (text, success) = command.args(["--features", "headroom-kernels/cuda"]).output_with_errors_shown()?;
        if success {
            Ok(built(&text))
        } else {
            Err(Failure::new("cargo could not build them").hint("its message is above"))
        }
    })
}

/// Returns the executables in cargo's messages.
fn built(messages: &str) -> Vec<(String, PathBuf)> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = |message: Value| {
        let name = message["target"]["name"].as_str().filter(|name| NAMES.contains(name))?.to_owned();
        Some((name, PathBuf::from(message["executable"].as_str()?)))
    };
    messages.filter_map(executable).collect()
}

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates it below the system's temporary directory.
    pub fn new() -> Result<Self> {
        let folder = env::temp_dir().join(format!("headroom-gpu-{}", std::process::id()));
        fs::create_dir_all(&folder).doing(|| format!("make {}", folder.display()))?;
        Ok(Self(folder))
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in it.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.join(name);
        fs::write(&path, bytes).doing(|| format!("write {}", path.display()))?;
        Ok(path)
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The system eventually removes leftovers.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_read_from_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"serde"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"headroom"},"executable":"/t/release/headroom"}
{"reason":"compiler-artifact","target":{"name":"ops"},"executable":"/t/release/deps/ops-1f"}
{"reason":"compiler-artifact","target":{"name":"build-script-build"},"executable":"/t/build"}
not JSON"#;
        let names: Vec<_> =
            built(messages).into_iter().map(|(name, path)| format!("{name} {}", path.display())).collect();
        assert_eq!(names, ["headroom /t/release/headroom", "ops /t/release/deps/ops-1f"]);
    }
}
