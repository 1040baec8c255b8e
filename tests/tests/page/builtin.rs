//! The headline: what ends in "CUDA out of memory" on a card of 12 GB trains there with the built-in trainer.

use crate::page::{LAPTOP, PHONE, tell};
use std::path::Path;

/// GPT-2 124M with 64 sequences of 1024 tokens in bfloat16, as nanoGPT has it; its numbers are given to both.
const FRAGMENT: &str = "1&batch_size=64&gradient_accumulation_steps=1&gpu=RTX%204070";
const ARGUMENTS: [&str; 3] = ["--gradient_accumulation_steps=1", "--gpu", "RTX 4070"];

/// What stands in the strip.
const ANSWER: &str = "document.querySelector('.builtin__answer').textContent";
const DETAIL: &str = "document.querySelector('.builtin__detail').textContent";

#[test]
fn the_headlines_run_fits_the_built_in_trainer() {
    tell("the_headlines_run_fits_the_built_in_trainer", async |page| {
        page.open(FRAGMENT).await;
        // Where a config would stand: nanoGPT's own defaults, but for that.
        let json = page.command_line(Path::new("--batch_size=64"), &ARGUMENTS);
        assert_eq!((&json["fits"], &json["builtin"]["fits"]), (&false.into(), &true.into()));
        assert_eq!(page.value::<String>("document.querySelector('#verdict').dataset.fits").await, "false");
        assert_eq!(page.value::<String>("document.querySelector('#builtin').dataset.outcome").await, "rescues");
        // To the byte, as it is exported too.
        let bytes = json["builtin"]["allocated_bytes"].as_u64().expect("bytes");
        let title: String = page.value("document.querySelector('.builtin__answer').title").await;
        assert_eq!(title.chars().filter(char::is_ascii_digit).collect::<String>(), bytes.to_string(), "{title}");
        let gib = |bytes: &serde_json::Value| format!("{:.2} GiB", bytes.as_f64().expect("bytes") / f64::from(1 << 30));
        let answer: String = page.value(ANSWER).await;
        let fits = format!(
            "Built-in trainer: fits, {} of {}; ",
            gib(&json["builtin"]["device_used_bytes"]),
            gib(&json["device"]["total_bytes"])
        );
        assert!(answer.starts_with(&fits), "{answer}");
        let levels = json["builtin"]["recompute"].as_array().expect("a level a block");
        let n_attention = levels.iter().filter(|level| **level == "attention").count();
        let again = format!("attention computed again in {n_attention} of 12 blocks");
        assert!(answer.contains(&again), "{answer}");
        let detail: String = page.value(DETAIL).await;
        let beside = format!("where PyTorch comes to {}.", gib(&json["peak"]["max_memory_allocated"]));
        assert!(detail.contains(&beside), "{detail}");
    });
}

/// Of what the strip says, how much is cut off: pixels across and down.
const CUT: &str = "['.builtin__answer', '.builtin__detail']
    .map((selector) => document.querySelector(selector))
    .flatMap((words) => [words.scrollWidth - words.clientWidth, words.scrollHeight - words.clientHeight])";

/// In every window, a low one too, the sentences are there and whole, and the button is beside them.
#[test]
fn the_strip_has_room_and_a_command() {
    tell("the_strip_has_room_and_a_command", async |page| {
        for size in [LAPTOP, PHONE, (1024, 768), (1279, 720), (1280, 700), (1280, 900), (360, 740)] {
            page.resize(size).await;
            // The longest words are German.
            for language in ["en", "de"] {
                page.open_link(&format!("{}?lang={language}#{FRAGMENT}", page.address)).await;
                let heights: Vec<f64> = page
                    .value(
                        "['.builtin__answer', '.builtin__detail', '#copy-train']
                        .map((selector) => document.querySelector(selector).getBoundingClientRect().height)",
                    )
                    .await;
                assert!(heights.iter().all(|height| *height > 8.0), "{size:?} {language}: {heights:?}");
                let cut: Vec<f64> = page.value(CUT).await;
                assert!(cut.iter().all(|pixels| *pixels <= 1.0), "{size:?} {language}: {cut:?}");
            }
        }
        // The measure can fail.
        page.script("document.querySelector('.builtin__answer').textContent += ' and so on'.repeat(200)").await;
        assert!(page.value::<Vec<f64>>(CUT).await.iter().any(|pixels| *pixels > 1.0));
        page.open("1&dtype='float32'&gpu=RTX%204070").await;
        page.until("it says why not", "document.querySelector('#builtin').dataset.outcome === 'unable'").await;
        assert!(page.value::<String>(ANSWER).await.contains("bfloat16 and not in float32"));
    });
}
