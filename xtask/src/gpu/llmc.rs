//! llm.c on the same GPU: its train_gpt2cu on the same tokens, built from the user's checkout. A program that is
//! already built in the checkout is used unchanged.

use super::{options::Options, programs::Scratch, results::absent, training::median_ms};
use crate::{
    failure::{IoContext, Result},
    shell::Shell,
};
use serde_json::{Value, json};
use std::{env, ffi::OsString, fs, path::Path, time::Duration};

/// Time limit for compiling one CUDA C++ file with templates.
const BUILD_TIME_MAX: Duration = Duration::from_secs(500);
const TIME_MAX: Duration = Duration::from_secs(200);
const WHO: &str = "llm.c";
const PROGRAM: &str = "train_gpt2cu";
/// Adapts a call of llm.c whose argument changed in CUDA 13.
const SHIM: &str = include_str!("../../gpu/llmc.h");
/// Prints the directories of cuBLAS in pip's packages for CUDA 13 and 12, as a fallback for the loader.
const LIBRARIES: &str = "import os, nvidia\nfolders = [os.path.join(at, lib) for at in nvidia.__path__ for lib in \
                         ('cu13/lib', 'cublas/lib')]\nprint(os.pathsep.join(filter(os.path.isdir, folders)))";
/// The evaluation interval: large, so that llm.c evaluates only at the start and the end. It must not be 0, because
/// llm.c divides by it.
const EVALUATE_EVERY: &str = "1000000";
/// llm.c's token files begin with 256 words, of which these are the first: the magic number and the version.
const MAGIC: [u32; 2] = [20_240_520, 1];
const HEADER_WORDS: usize = 256;
/// Recomputation levels: none, and GELU, which is llm.c's default.
const LEVELS: [(&str, &str); 2] = [("none", "0"), ("gelu", "1")];

/// Adds a line per level and batch size.
pub fn measure(
    shell: &Shell,
    options: &Options,
    scratch: &Scratch,
    data: &Path,
    add: &mut dyn FnMut(Value) -> Result<()>,
) -> Result<()> {
    let size = &options.size;
    let ready = match &options.llmc {
        None => Err("--llmc names no checkout of it".to_owned()),
        Some(folder) => build(shell, folder, scratch)?.map(|()| folder.clone()),
    };
    let libraries = libraries(shell);
    for batch_size in size.speeds {
        for (level, flag) in LEVELS {
            let folder = match &ready {
                Ok(folder) => folder,
                Err(reason) => {
                    add(absent(WHO, batch_size, reason))?;
                    continue;
                }
            };
            let tokens = tokens(scratch, data)?;
            let (batch, length) = (batch_size.to_string(), size.model.block_size.to_string());
            let (whole, steps) =
                ((batch_size * size.model.block_size).to_string(), (size.warm_up + size.timed).to_string());
            let model = format!("d{}", size.model.n_layer);
            let command =
                shell.cmd(folder.join(PROGRAM)).dir(folder).args(["-i", &tokens, "-j", &tokens, "-e", &model]);
            let command = command.args(["-b", &batch, "-t", &length, "-d", &whole, "-x", &steps, "-r", flag]);
            // Disables sampling and checkpoints.
            let command = command.args(["-v", EVALUATE_EVERY, "-m", "1", "-s", "0", "-h", "0", "-n", "0"]);
            let ended = command.env("LD_LIBRARY_PATH", &libraries).limited(TIME_MAX, |_| {})?;
            let median = median_ms(&times_ms(&ended.out), size.warm_up).filter(|_| ended.success);
            add(match median {
                Some(ms) => json!({
                    "kind": "speed", "who": WHO, "available": true, "batch_size": batch_size, "recompute": level,
                    "iteration_ms": ms, "tokens_per_second": (batch_size * size.model.block_size) as f64 / ms * 1e3,
                }),
                None => absent(WHO, batch_size, &ended.why().unwrap_or_else(|| "it prints no times".to_owned())),
            })?;
        }
    }
    Ok(())
}

/// Builds the program if it is missing; returns why it cannot be built.
fn build(shell: &Shell, folder: &Path, scratch: &Scratch) -> Result<std::result::Result<(), String>> {
    let program = folder.join(PROGRAM);
    if program.is_file() {
        // Copying the directory may have lost the executable bit. If it cannot be restored, the start reports an error.
        #[cfg(unix)]
        let _ = fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755));
        return Ok(Ok(()));
    }
    if shell.which("nvcc").is_none() || shell.which("make").is_none() {
        return Ok(Err(format!("{} has no {PROGRAM}, and make and nvcc are not both on PATH", folder.display())));
    }
    let shim = scratch.write("llmc.h", SHIM.as_bytes())?;
    // A single GPU, so that the build needs neither MPI nor NCCL.
    let command = shell.cmd("make").dir(folder).args([PROGRAM, "NO_MULTI_GPU=1", "NO_USE_MPI=1"]);
    let command = command.args(capability(shell).map(|number| format!("GPU_COMPUTE_CAPABILITY={number}")));
    let command = command.env("NVCC_APPEND_FLAGS", format!("-include {}", shim.display()));
    let ended = command.limited(BUILD_TIME_MAX, |_| {})?;
    Ok(ended.why().map_or(Ok(()), |why| Err(format!("make {PROGRAM}: {why}"))))
}

/// Returns the first GPU's compute capability, such as 90 for 9.0. llm.c's Makefile fails to detect it, and the
/// compiler's default is for older GPUs.
fn capability(shell: &Shell) -> Option<String> {
    let text = shell.cmd("nvidia-smi").args(["--query-gpu=compute_cap", "--format=csv,noheader"]).read()?;
    let number: String = text.lines().next()?.trim().split('.').collect();
    (!number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit())).then_some(number)
}

/// Search path for libraries: the current one, then the directories of PyTorch's packages.
fn libraries(shell: &Shell) -> OsString {
    let current = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let beside = shell.cmd("python3").args(["-c", LIBRARIES]).read().unwrap_or_default();
    let beside = OsString::from(beside.trim());
    let folders = env::split_paths(&current).chain(env::split_paths(&beside));
    // No directory contains the separator, because the list was split at it.
    env::join_paths(folders.filter(|folder| !folder.as_os_str().is_empty())).unwrap_or(current.clone())
}

/// Returns the path of the training tokens in llm.c's format.
fn tokens(scratch: &Scratch, data: &Path) -> Result<String> {
    let path = scratch.join("llmc.bin");
    if !path.is_file() {
        let train = data.join("train.bin");
        let train = fs::read(&train).doing(|| format!("read {}", train.display()))?;
        scratch.write("llmc.bin", &as_llmc_reads(&train))?;
    }
    Ok(path.display().to_string())
}

/// Prepends llm.c's header to nanoGPT's 16-bit tokens.
fn as_llmc_reads(tokens: &[u8]) -> Vec<u8> {
    let n_tokens = u32::try_from(tokens.len() / 2).unwrap_or(u32::MAX);
    let mut words = [0; HEADER_WORDS];
    words[..3].copy_from_slice(&[MAGIC[0], MAGIC[1], n_tokens]);
    words.iter().flat_map(|word| word.to_le_bytes()).chain(tokens.iter().copied()).collect()
}

/// The figure before `ms` in every iteration's line:
/// `step    3/20 | loss 9.5 (+nanz)| norm 2.1 (+nanz)| lr 3e-06 | 91.25 ms | 44.4% bf16 MFU | 718000 tok/s`.
fn times_ms(said: &str) -> Vec<f64> {
    let steps = said.lines().filter(|line| line.trim_start().starts_with("step") && line.contains("tok/s"));
    let time = |line: &str| {
        line.split('|').find_map(|part| part.trim().strip_suffix("ms").and_then(|number| number.trim().parse().ok()))
    };
    steps.filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_its_lines() {
        let said = "num_parameters: 124475904 => bytes: 248951808\n\
                    step    1/3 | loss 10.98 (+nanz)| norm 15.3 (+nanz)| lr 3.0e-04 | 205.51 ms | 40.1% bf16 MFU | 318000 tok/s\n\
                    val loss 9.1\n\
                    step    2/3 | loss 10.1 (+nanz)| norm 9.3 (+nanz)| lr 3.0e-04 | 91.25 ms | 60.2% bf16 MFU | 718200 tok/s\n\
                    total average iteration time: 91.25 ms\n";
        assert_eq!(times_ms(said), [205.51, 91.25]);
    }

    #[test]
    fn tokens_follow_kibibyte_header() {
        let bytes = as_llmc_reads(&[7, 0, 8, 1]);
        assert_eq!(bytes.len(), 1024 + 4);
        assert_eq!(bytes[..12], [0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes[1024..], [7, 0, 8, 1]);
    }
}
