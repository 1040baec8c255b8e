//! What the demo shows while it loads a model and while it writes, and its pace.

use std::fs;

use headroom_languages as _;
use headroom_text as text;

use super::{READY, choose, demo, shipped, write};
use crate::{
    environment::Means,
    page::{LAPTOP, PHONE, tell_of},
    plain_host::PlainHost,
};

/// The page is not empty on a slow network: the status has the bytes that have arrived, and the total.
#[test]
fn arrived_part_of_the_model_is_shown() {
    const FIRST_BYTES: usize = 1_000_000;
    let test = "arrived_part_of_the_model_is_shown";
    let Some(means) = Means::of(test) else { return };
    let host = PlainHost::start_slow(&means.dist, "stories.safetensors", FIRST_BYTES);
    tell_of(test, &means, &host.address, &[], None, async |page| {
        page.goto(&format!("{}demo.html", page.address)).await;
        let all_bytes = fs::metadata(shipped()).expect("the model that ships").len();
        let [first, all] = [FIRST_BYTES as u64, all_bytes].map(text::size);
        let progress = text::demo_fetched(first, all).to_string();
        let state = "document.querySelector('[data-testid=backend]')?.textContent";
        assert_eq!(page.until_says(state, &progress).await.trim(), progress);
        assert!(page.value::<bool>("document.querySelector('#write').disabled").await);
        host.release();
        page.until("the model is loaded", READY).await;
    });
    host.assert_complete();
}

#[test]
fn loss_of_the_built_in_model_is_stated() {
    demo("loss_of_the_built_in_model_is_stated", &[], async |page| {
        let stated = "validation loss 0.170";
        assert!(page.text(".demo__model").await.contains(stated));
        choose(page, &[&shipped()]).await;
        page.until("a file is open", &format!("{READY} && document.querySelector('#shipped')")).await;
        assert!(!page.text(".demo__model").await.contains(stated), "the loss of a file is unknown");
    });
}

#[test]
fn a_text_states_the_limit_that_ended_it() {
    demo("a_text_states_the_limit_that_ended_it", &[], async |page| {
        let n_written = "document.querySelectorAll('#tokens .token:not(.token--given)').length";
        for (n_tokens, said) in [(20, "Stopped at the limit of 20 tokens."), (1, "Stopped at the limit of one token.")]
        {
            write(page, "Once upon a time", 1, n_tokens).await;
            assert_eq!(page.value::<u32>(n_written).await, n_tokens);
            let ended = page.text("[data-testid=ended]").await;
            assert!(ended.starts_with(said), "{ended}");
            assert!(page.value::<bool>("!document.querySelector('[data-testid=beyond]')").await, "it is short");
        }
        // The prompt has 16 characters, and the context 256.
        write(page, "Once upon a time", 1, 241).await;
        let beyond = page.text("[data-testid=beyond]").await;
        assert!(beyond.starts_with("The text is longer than the context of 256 tokens."), "{beyond}");
    });
}

#[test]
fn text_keeps_its_pace_beyond_the_context() {
    demo("text_keeps_its_pace_beyond_the_context", &[], async |page| {
        let mut rates = Vec::new();
        // The first text is a warm-up for the browser's compilation. The second ends within the context.
        for n_tokens in [240, 240, 900] {
            write(page, "Once upon a time", 1, n_tokens).await;
            let rate = page.text("[data-testid=rate]").await.replace(',', "");
            rates.push(rate.trim_end_matches(" tokens/s").parse::<f64>().expect("a rate"));
        }
        assert!(rates[2] > rates[1] / 8.0, "{rates:?} tokens per second");
    });
}

/// The height of the smallest token name on the attention map's axis, in CSS pixels.
const AXIS_PX: &str = "Math.min(...[...document.querySelectorAll('.map__name')].map((name) =>
    parseFloat(getComputedStyle(name).fontSize) * name.getScreenCTM().d))";

#[test]
fn names_on_the_attention_map_are_readable() {
    demo("names_on_the_attention_map_are_readable", &[], async |page| {
        write(page, "Once upon a time", 1, 30).await;
        page.until("the map is there", "document.querySelector('[data-testid=map]')").await;
        for size in [(320, 640), PHONE, (768, 1024), LAPTOP, (1920, 1080)] {
            page.resize(size).await;
            let px: f64 = page.value(AXIS_PX).await;
            assert!(px >= 11.0, "{size:?}: {px} px");
        }
    });
}

#[test]
fn a_text_can_be_stopped_and_the_page_stays_awake() {
    demo("a_text_can_be_stopped_and_the_page_stays_awake", &[], async |page| {
        page.fill("#n-tokens", "2000").await;
        page.click("#slowly").await;
        page.click("#write").await;
        page.until("it writes", "document.querySelector('#tokens').children.length > 18").await;
        assert_eq!(page.text("#write").await, "Stop");
        page.click("#write").await;
        page.until(
            "it stopped",
            "document.querySelector('[data-testid=ended]').textContent.startsWith('Stopped after')",
        )
        .await;
        let n: u64 = page.value("document.querySelectorAll('#tokens .token:not(.token--given)').length").await;
        assert!((1..2000).contains(&n), "{n} tokens");
    });
}

#[test]
fn another_pace_takes_effect_at_once() {
    /// The pause after each token of the slow pace.
    const PAUSE_MILLIS: f64 = 150.0;
    /// Tokens whose time is compared with their pauses, which are a lower bound.
    const GAPS: u32 = 10;
    demo("another_pace_takes_effect_at_once", &[], async |page| {
        // At the slow pace this takes a minute, which exceeds every timeout.
        page.fill("#n-tokens", "400").await;
        page.click("#slowly").await;
        page.click("#write").await;
        page.until("it writes", "document.querySelector('#tokens').children.length > 18").await;
        page.click("#slowly").await;
        page.until("the text ends", "document.querySelector('[data-testid=ended]').textContent !== ''").await;
        // From the fast to the slow pace, by the page itself, because the text would end before a click of the test.
        page.fill("#n-tokens", "2000").await;
        page.script(
            "const tokens = document.querySelector('#tokens');
             window.times = [];
             const note = () => {
               const { length } = tokens.children;
               if (length < times.length) window.times = [];
               while (times.length < length) times.push(performance.now());
               if (length > 0 && window.first === undefined) {
                 window.first = length;
                 document.querySelector('#slowly').click();
               }
             };
             new MutationObserver(note).observe(tokens, { childList: true })",
        )
        .await;
        page.click("#write").await;
        // The page's delays shorten some gaps between tokens, and lengthen others.
        let longest = "Math.max(...times.slice(first, -GAPS).map((time, index) => times[first + index + GAPS] - time))";
        let least = PAUSE_MILLIS * f64::from(GAPS) - 1.0;
        let is_slow = format!("{} >= {least}", longest.replace("GAPS", &GAPS.to_string()));
        page.until("the pauses are there", &is_slow).await;
    });
}
