//! NVRTC and ptxas, from the Python packages that NVIDIA publishes them in: no CUDA toolkit is installed.

use super::{ARCHITECTURES, Built, HEADER, usage};
use crate::{
    failure::{Doing, Failure, Result},
    pins::{NVRTC, PTXAS},
    python,
    shell::Shell,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// How every kernel is compiled: for the oldest architecture that has bfloat16 and asynchronous copies. A driver
/// translates the PTX for its card.
pub const OPTIONS: [&str; 3] = ["--gpu-architecture=compute_80", "--std=c++17", "-default-device"];
/// Why there are no compilers, where there are none.
pub const NONE: &str = "the compilers of the CUDA kernels come as Python packages for Linux, and there is no Python \
                        3.11 or newer with venv to fetch them";

/// Both, and what runs the first.
#[derive(Debug)]
pub struct Compilers {
    python: PathBuf,
    nvrtc: PathBuf,
    ptxas: PathBuf,
}

impl Compilers {
    /// Sees to them; `None` on a machine that they cannot be on.
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
        for (pin, file) in [(NVRTC, &nvrtc), (PTXAS, &ptxas)] {
            if !file.is_file() {
                return Err(Failure::new(format!("{} is installed without {}", pin.package, file.display())));
            }
        }
        Ok(Some(Self { python, nvrtc, ptxas }))
    }

    /// Compiles one file of `cuda`, and assembles it for every architecture; what comes of it is put into `scratch`.
    pub fn build(&self, shell: &Shell, cuda: &Path, scratch: &Path, op: &str) -> Result<Built> {
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
        let mut built = Built { op: op.to_owned(), ptx, entries: BTreeMap::new(), warnings: vec![] };
        for architecture in ARCHITECTURES {
            let cubin = scratch.join(format!("{op}.{architecture}.cubin"));
            let command = shell.cmd(self.ptxas.clone()).args(["--verbose", "--gpu-name", architecture]);
            let (said, assembled) = command.args([&shown(&file), "--output-file", &shown(&cubin)]).capture()?;
            if !assembled {
                return Err(Failure::new(format!("{op}.ptx is not assembled for {architecture}:\n{said}")));
            }
            let report = usage::read(&said).ok_or_else(|| {
                Failure::new(format!("what ptxas says of {op}.ptx for {architecture} is not understood:\n{said}"))
            })?;
            for (entry, usage) in report.entries {
                built.entries.entry(entry).or_default().push((architecture, usage));
            }
            built.warnings.extend(report.warnings.iter().map(|warning| format!("{op} on {architecture}: {warning}")));
        }
        Ok(built)
    }
}

/// Said with the hashes, as another version makes other PTX.
pub fn names() -> [String; 2] {
    [NVRTC, PTXAS].map(|pin| format!("{} {}", pin.package, pin.version))
}
