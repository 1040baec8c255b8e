//! The programs that measure: beside this one where they were packed, else built now.

use super::options::Options;
use crate::{
    failure::{Doing, Failure, Result},
    shell::{Shell, step},
};
use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Their names in a pack, and as cargo calls them.
pub const NAMES: [&str; 4] = ["headroom", "xtask", "ops", "cuda_ops"];

/// Where they are.
#[derive(Debug)]
pub struct Programs {
    /// `headroom`.
    pub headroom: PathBuf,
    /// The tests of every op.
    pub ops: PathBuf,
    /// What times every op.
    pub cuda_ops: PathBuf,
}

impl Programs {
    /// Finds them, or builds what is missing.
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

/// A program in this one's folder, which is a pack where the tests are there too.
fn beside(name: &str) -> Option<PathBuf> {
    let folder = env::current_exe().ok()?.parent()?.to_owned();
    let path = folder.join(name);
    (folder.join("ops").is_file() && path.is_file()).then_some(path)
}

/// The test program of a name that cargo built last without optimisation: `ops-` and a hash, and no ending.
pub fn newest_test(shell: &Shell, name: &str) -> Option<PathBuf> {
    let files = fs::read_dir(shell.target.join("debug/deps")).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let tests = files.filter(|path| {
        let hash = path.file_name().and_then(|file| file.to_str()?.strip_prefix(name)?.strip_prefix('-'));
        hash.is_some_and(|hash| hash.chars().all(|char| char.is_ascii_hexdigit()))
    });
    tests.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok())
}

/// An example that cargo built without optimisation.
pub fn example(shell: &Shell, name: &str) -> Option<PathBuf> {
    Some(shell.target.join("debug/examples").join(name)).filter(|path| path.is_file())
}

/// Builds all of [`NAMES`] as they ship, and says where each lies.
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

/// The executables among cargo's messages.
fn built(messages: &str) -> Vec<(String, PathBuf)> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executable = |message: Value| {
        let name = message["target"]["name"].as_str().filter(|name| NAMES.contains(name))?.to_owned();
        Some((name, PathBuf::from(message["executable"].as_str()?)))
    };
    messages.filter_map(executable).collect()
}

/// A folder of this process's own, gone when this is.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes it among the system's temporary ones.
    pub fn new() -> Result<Self> {
        let folder = env::temp_dir().join(format!("headroom-gpu-{}", std::process::id()));
        fs::create_dir_all(&folder).doing(|| format!("make {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file into it.
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
        // What is left is among what the system clears away.
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
