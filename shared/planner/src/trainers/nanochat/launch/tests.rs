//! Commands, shell scripts and logs that describe a run of nanochat.

use super::{Launch, LaunchError, of_command, of_text};
use crate::trainers::nanochat::Run;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_options_follow_the_script() {
    for command in [
        "python -m scripts.base_train --depth=12 --run x",
        "torchrun --standalone --nproc_per_node=1 -m scripts.base_train -- --depth=12 --run x",
        "OMP_NUM_THREADS=1 torchrun --nproc-per-node 1 -m scripts.base_train -- --depth=12 --run x",
        "uv run python3 -m scripts.base_train --depth=12 --run x",
        "python scripts/base_train.py --depth=12 --run x",
        "scripts.base_train --depth=12 --run x",
    ] {
        assert_eq!(
            of_command(&words(command)).map(|launch| launch.options),
            Ok(words("--depth=12 --run x")),
            "{command}"
        );
        assert_eq!(of_text(command), of_command(&words(command)), "{command}");
        assert_eq!(of_command(&[command.to_owned()]), of_command(&words(command)), "{command}");
    }
}

#[test]
fn several_processes_are_refused() {
    let torchrun = |option: &str| of_command(&words(&format!("torchrun {option} -m scripts.base_train -- --depth=12")));
    assert_eq!(torchrun("--nproc_per_node=8"), Err(LaunchError::Processes { processes: 8 }));
    assert_eq!(torchrun("--nproc_per_node 4 --nnodes=2"), Err(LaunchError::Processes { processes: 8 }));
    assert_eq!(torchrun("--nproc_per_node=gpu"), Err(LaunchError::UnknownProcesses));
    assert_eq!(torchrun("--nproc_per_node=$NPROC_PER_NODE"), Err(LaunchError::UnknownProcesses));
    assert_eq!(of_command(&words("python train.py --depth=12")), Err(LaunchError::NoRun));
    assert_eq!(of_command(&words("vim scripts/base_train.py")), Err(LaunchError::NoRun));
}

#[test]
fn a_shell_script_has_the_command_on_several_lines() {
    let script = "#!/bin/bash\n# python -m scripts.base_train --depth=4\nexport OMP_NUM_THREADS=1\n\
                  python -m scripts.tok_train\n\
                  torchrun --standalone --nproc_per_node=1 \\\n    -m scripts.base_train -- \\\n    --depth=12 \\\n    \
                  --device-batch-size=4 2>&1 | tee \"log file.txt\"\npython -m scripts.base_train --depth=24\n";
    let launch = of_text(script).expect("a command");
    assert_eq!(launch, Launch { options: words("--depth=12 --device-batch-size=4"), gpu: None });
    assert_eq!(of_text("+ python -m scripts.base_train --depth=6\n").expect("a trace").options, ["--depth=6"]);
}

const LOG: &str = "\
GPU: NVIDIA GeForce RTX 4090 | Peak FLOPS (BF16): 1.65e+14
COMPUTE_DTYPE: torch.bfloat16 (auto-detected: CUDA SM 89 (bf16 supported))
Vocab size: 65,536
Model config:
{
  \"sequence_len\": 1024,
  \"vocab_size\": 65536,
  \"n_layer\": 12,
  \"n_head\": 6,
  \"n_kv_head\": 6,
  \"n_embd\": 768,
  \"window_pattern\": \"SSSL\"
}
Parameter counts:
Tokens / micro-batch / rank: 8 x 1024 = 8,192
Tokens / micro-batch: 8,192
Total batch size 524,288 => gradient accumulation steps: 64
step 00000/01000 (0.00%) | loss: 11.090355
";

#[test]
fn a_log_has_the_model_and_the_batch() {
    let launch = of_text(LOG).expect("a run");
    assert_eq!(launch.gpu.as_deref(), Some("NVIDIA GeForce RTX 4090"));
    let run = |words: &[String]| Run::read(words).map(|run| run.config());
    let eager = ["--compile=False".to_owned()];
    let expected = "--compile=False --depth=12 --max-seq-len=1024 --vocab-size=65536 --device-batch-size=8 \
                    --total-batch-size=524288";
    assert_eq!(run(&[&launch.options[..], &eager].concat()), run(&words(expected)));
}

#[test]
fn an_incomplete_log_is_refused() {
    for (log, expected) in [
        (
            LOG.replace("Tokens / micro-batch: 8,192", "Tokens / micro-batch: 65,536"),
            LaunchError::Processes { processes: 8 },
        ),
        (LOG.replace("Total batch", "total"), LaunchError::MissingLine { line: "Total batch size" }),
        (LOG.replace("Model config", "model"), LaunchError::NoRun),
        (String::new(), LaunchError::NoRun),
    ] {
        assert_eq!(of_text(&log), Err(expected), "{log}");
    }
    let other = LOG.replace("\"n_kv_head\": 6", "\"n_kv_head\": 2");
    assert!(matches!(of_text(&other), Err(LaunchError::Model { .. })));
    let cut = &LOG[..LOG.find("n_embd").expect("a key")];
    assert!(matches!(of_text(cut), Err(LaunchError::Model { .. })));
}
