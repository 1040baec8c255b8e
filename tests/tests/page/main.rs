//! Tests of the page as users see it. The real program serves the real page to headless Chromium.
//!
//! `HEADROOM_BIN`, `HEADROOM_DIST`, `CHROMIUM` and `CHROMEDRIVER` name what the tests need, and `HEADROOM_AXE`
//! axe-core's script. `cargo xtask test` sets them. A test that lacks one is counted as skipped.
//!
//! Every test ends with a check of the browser's console and of the requested addresses.

mod accessible;
mod agent;
mod bench;
mod browser;
mod builtin;
mod carried;
mod chart;
mod code_changes;
mod compare;
mod demo;
mod diagnose;
mod documentation;
mod embed;
mod embed_page;
mod environment;
mod gpu_field;
mod gpus;
mod history;
mod journey;
mod keyboard;
mod languages;
mod layout;
mod long_text;
mod numbers;
mod page;
mod plain_host;
mod problems;
mod reading;
mod replay;
mod rig;
mod rig_alerts;
#[cfg(unix)]
mod rig_gpu;
mod rig_runs;
#[cfg(unix)]
mod rig_training;
mod rig_words;
mod rig_writes;
mod shared_links;
mod start;
mod static_host;
mod targets;
mod tensors;
mod trainers;
mod unread;

/// The values of nanoGPT's `config/train_gpt2.py`, in our own words.
const TRAIN_GPT2: &str = "\
# GPT-2 (124M) on OpenWebText, for a node of eight cards
# torchrun --standalone --nproc_per_node=8 train.py config/train_gpt2.py

wandb_log = True
wandb_project = 'owt'
wandb_run_name = 'gpt2-124M'

# 12 sequences of 1024 tokens, 5 steps on each of 8 cards: 491,520 tokens an iteration
batch_size = 12
block_size = 1024
gradient_accumulation_steps = 5 * 8

# 300B tokens in all
max_iters = 600000
lr_decay_iters = 600000

# evaluation
eval_interval = 1000
eval_iters = 200
log_interval = 10

weight_decay = 1e-1
";

/// The check at the end of every test detects a console error and a refused request.
#[test]
fn page_errors_are_noticed() {
    page::tell("page_errors_are_noticed", async |page| {
        page.assert_quiet().await;
        page.script("console.error('a line of ours')").await;
        page.promise("fetch('http://127.0.0.2:1/').catch(() => 0)").await;
        let console = page.browser.console().await;
        assert!(console.iter().any(|line| line.contains("a line of ours")), "{console:?}");
        assert!(console.iter().any(|line| line.contains("Content Security Policy")), "{console:?}");
        page.open("").await;
    });
}
