//! The page as people use it: the real program serves the real page to headless Chromium.
//!
//! `HEADROOM_BIN`, `HEADROOM_DIST`, `CHROMIUM` and `CHROMEDRIVER` name what this takes, and `HEADROOM_AXE` axe-core's
//! script; `cargo xtask test` sets them. What a machine lacks is counted as skipped.
//!
//! Every test ends by looking at what the browser wrote into its console and which addresses it asked for.

mod accessible;
mod agent;
mod bench;
mod browser;
mod builtin;
mod demo;
mod diagnose;
mod embed;
mod embed_page;
mod journey;
mod keyboard;
mod languages;
mod layout;
mod means;
mod numbers;
mod page;
mod plain_host;
mod problems;
mod rig;
mod rig_alerts;
#[cfg(unix)]
mod rig_card;
mod rig_runs;
#[cfg(unix)]
mod rig_training;
mod rig_words;
mod rig_writes;
mod static_host;
mod targets;
mod unread;

/// A run as nanoGPT's `config/train_gpt2.py` sets it up: its values, our words.
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

/// The look at the console that ends every test can fail: an error and a refused request are both in it.
#[test]
fn what_a_page_does_wrong_is_noticed() {
    page::tell("what_a_page_does_wrong_is_noticed", async |page| {
        page.assert_quiet().await;
        page.script("console.error('a line of ours')").await;
        page.promise("fetch('http://127.0.0.2:1/').catch(() => 0)").await;
        let console = page.browser.console().await;
        assert!(console.iter().any(|line| line.contains("a line of ours")), "{console:?}");
        assert!(console.iter().any(|line| line.contains("Content Security Policy")), "{console:?}");
        page.open("").await;
    });
}
