//! NVRTC and ptxas, from NVIDIA's Python packages: no CUDA toolkit is installed.

use super::{ARCHITECTURES, CompiledKernel, HEADER, NEWEST_ARCHITECTURES, usage};
use crate::{
    failure::{Failure, IoContext, Result},
    pins::{NVRTC, PTXAS, PTXAS_NEWEST},
    python,
    shell::Shell,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Compiler options: the oldest architecture with bfloat16 and asynchronous copies. A driver translates the PTX for its
/// GPU.
pub const OPTIONS: [&str; 3] = ["--gpu-architecture=compute_80", "--std=c++17", "-default-device"];
/// The reason for missing compilers.
pub const NONE: &str = "the compilers of the CUDA kernels come as Python packages for Linux, and there is no Python \
                        3.11 or newer with venv to fetch them";

/// The compilers, and the Python that runs NVRTC.
#[derive(Debug)]
pub struct Compilers {
    python: PathBuf,
    nvrtc: PathBuf,
    ptxas: PathBuf,
    ptxas_newest: PathBuf,
}

impl Compilers {
    /// Installs the compilers; `None` on a machine that does not support them.
    pub fn ensure(shell: &Shell) -> Result<Option<Self>> {
        if !cfg!(target_os = "linux") {
            return Ok(None);
        }
        let Some(environment) = python::ensure(shell, NVRTC, &shell.root.join("xtask/nvrtc.txt"))? else {
            return Ok(None);
        };
        let python = environment.python();
        let ask = "import sysconfig; print(sysconfig.get_path('purelib'))";
        let folder = shell.cmd(python.clone()).args(["-c", ask]).read();
        let folder = folder.ok_or_else(|| Failure::new("the compilers' Python does not say where its packages are"))?;
        let packages = Path::new(folder.trim()).join("nvidia");
        let (nvrtc, ptxas) = (packages.join("cuda_nvrtc/lib/libnvrtc.so.12"), packages.join("cuda_nvcc/bin/ptxas"));
        let ptxas_newest = packages.join("cu13/bin/ptxas");
        for (pin, file) in [(NVRTC, &nvrtc), (PTXAS, &ptxas), (PTXAS_NEWEST, &ptxas_newest)] {
            if !file.is_file() {
                return Err(Failure::new(format!("{} is installed without {}", pin.package, file.display())));
            }
        }
        Ok(Some(Self { python, nvrtc, ptxas, ptxas_newest }))
    }

    /// Compiles a file of `cuda`, and assembles it for every architecture; outputs go to `scratch`.
    pub fn build(&self, shell: &Shell, cuda: &Path, scratch: &Path, op: &str) -> Result<CompiledKernel> {
        let shown = |path: &Path| path.display().to_string();
        let file = scratch.join(format!("{op}.ptx"));
        let (source, header) = (cuda.join(format!("{op}.cu")), cuda.join(HEADER));
        let script = shell.root.join("xtask/nvrtc.py");
        let words = [&script, &self.nvrtc, &source, &header, &file].map(|path| shown(path));
        let (said, compiled) = shell.cmd(self.python.clone()).args(words).args(OPTIONS).capture()?;
        if !compiled {
            return Err(Failure::new(format!("{op}.cu does not compile:\n{said}")));
        }
        let ptx = fs::read_to_string(&file).doing(|| format!("read {}", file.display()))?;
        let mut built = CompiledKernel {
            op: op.to_owned(),
            ptx,
            entries: BTreeMap::new(),
            newest: BTreeMap::new(),
            warnings: vec![],
        };
        let assemblers = [
            (&self.ptxas, ARCHITECTURES.as_slice(), &mut built.entries),
            (&self.ptxas_newest, NEWEST_ARCHITECTURES.as_slice(), &mut built.newest),
        ];
        for (ptxas, architectures, entries) in assemblers {
            for &architecture in architectures {
                let report = assemble(shell, ptxas, &file, architecture)?;
                for (entry, usage) in report.entries {
                    entries.entry(entry).or_default().push((architecture, usage));
                }
                let warnings = report.warnings.iter().map(|warning| format!("{op} on {architecture}: {warning}"));
                built.warnings.extend(warnings);
            }
        }
        Ok(built)
    }
}

/// Assembles a PTX file for an architecture, and keeps only the assembler's messages.
fn assemble(shell: &Shell, ptxas: &Path, file: &Path, architecture: &str) -> Result<usage::Report> {
    let shown = |path: &Path| path.display().to_string();
    let cubin = file.with_extension(format!("{architecture}.cubin"));
    let command = shell.cmd(ptxas.to_owned()).args(["--verbose", "--gpu-name", architecture]);
    let (said, assembled) = command.args([&shown(file), "--output-file", &shown(&cubin)]).capture()?;
    let name = file.file_name().unwrap_or_default().display();
    if !assembled {
        return Err(Failure::new(format!("{name} is not assembled for {architecture}:\n{said}")));
    }
    usage::read(&said)
        .ok_or_else(|| Failure::new(format!("what ptxas says of {name} for {architecture} is not understood:\n{said}")))
}

/// Returns the names and versions of the compilers; part of the hashes, because another version produces different PTX.
pub fn names() -> [String; 2] {
    [NVRTC, PTXAS].map(|pin| format!("{} {}", pin.package, pin.version))
}
