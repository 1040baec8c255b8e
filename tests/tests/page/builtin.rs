//! A run that ends in "CUDA out of memory" on a GPU of 12 GB fits the built-in trainer.

use crate::page::{LAPTOP, PHONE, tell};
use std::path::Path;

/// GPT-2 124M with 64 sequences of 1024 tokens in bfloat16, nanoGPT's defaults. The page and the command line get the
/// same values.
const FRAGMENT: &str = "1&batch_size=64&gradient_accumulation_steps=1&gpu=RTX%204070";
const ARGUMENTS: [&str; 3] = ["--gradient_accumulation_steps=1", "--gpu", "RTX 4070"];

/// The panel's texts.
const ANSWER: &str = "document.querySelector('.builtin__answer').textContent";
const DETAIL: &str = "document.querySelector('.builtin__detail').textContent";

#[test]
fn the_headlines_run_fits_the_built_in_trainer() {
    tell("the_headlines_run_fits_the_built_in_trainer", async |page| {
        page.open(FRAGMENT).await;
        // An override takes the config's place. All other values are nanoGPT's defaults.
        let json = page.command_line(Path::new("--batch_size=64"), &ARGUMENTS);
        assert_eq!((&json["fits"], &json["builtin"]["fits"]), (&false.into(), &true.into()));
        assert_eq!(page.value::<String>("document.querySelector('#verdict').dataset.fits").await, "false");
        assert_eq!(page.value::<String>("document.querySelector('#builtin').dataset.outcome").await, "rescues");
        // Exact to the byte, as in the export.
        let bytes = json["builtin"]["allocated_bytes"].as_u64().expect("bytes");
        let title: String = page.value("document.querySelector('.builtin__answer').title").await;
        assert_eq!(title.chars().filter(char::is_ascii_digit).collect::<String>(), bytes.to_string(), "{title}");
        let gib = |bytes: &serde_json::Value| format!("{:.2} GiB", bytes.as_f64().expect("bytes") / f64::from(1 << 30));
        let answer: String = page.value(ANSWER).await;
        let fits = format!(
            "Headroom's own trainer fits this run: {} of {}; ",
            gib(&json["builtin"]["device_used_bytes"]),
            gib(&json["device"]["total_bytes"])
        );
        assert!(answer.starts_with(&fits), "{answer}");
        let levels = json["builtin"]["recompute"].as_array().expect("a level a block");
        let n_attention = levels.iter().filter(|level| **level == "attention").count();
        let again = format!("attention recomputed in {n_attention} of 12 blocks");
        assert!(answer.contains(&again), "{answer}");
        let detail: String = page.value(DETAIL).await;
        let beside = format!("PyTorch allocates up to {}.", gib(&json["peak"]["max_memory_allocated"]));
        assert!(detail.contains(&beside), "{detail}");
    });
}

/// By how many pixels the panel's texts are cut off, across and down.
const CUT: &str = "['.builtin__answer', '.builtin__detail']
    .map((selector) => document.querySelector(selector))
    .flatMap((words) => [words.scrollWidth - words.clientWidth, words.scrollHeight - words.clientHeight])";

/// In every window, also a low one, the texts are complete and beside the button.
#[test]
fn the_strip_has_room_and_a_command() {
    tell("the_strip_has_room_and_a_command", async |page| {
        for size in [LAPTOP, PHONE, (1024, 768), (1279, 720), (1280, 700), (1280, 900), (360, 740)] {
            page.resize(size).await;
            // German has the longest words.
            for language in ["en", "de"] {
                page.open_link(&format!("{}calculator.html?lang={language}#{FRAGMENT}", page.address)).await;
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
        // The check detects a cut text.
        page.script("document.querySelector('.builtin__answer').style.cssText = 'height: 0.5em; overflow: hidden'")
            .await;
        assert!(page.value::<Vec<f64>>(CUT).await.iter().any(|pixels| *pixels > 1.0));
        page.open("1&dtype='float32'&gpu=RTX%204070").await;
        page.until("it says why not", "document.querySelector('#builtin').dataset.outcome === 'unable'").await;
        assert!(page.value::<String>(ANSWER).await.contains("bfloat16, not in float32"));
        page.paste("#config", "compile = maybe").await;
        page.until("there is no command without a plan", "document.querySelector('#copy-train').disabled").await;
        let visibility = "getComputedStyle(document.querySelector('#copy-train')).visibility";
        assert_eq!(page.value::<String>(visibility).await, "hidden", "the strip has no text");
    });
}
