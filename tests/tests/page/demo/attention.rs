//! Attention: what a token attends to, and the maps of all heads.

use std::fs;

use fantoccini::key::Key;
use headroom_kernels::decode::{Decoder, Storage};

use super::{READY, assert_accessible, choose, demo, files::small_gpt2, scratch, write};
use crate::{
    environment::named,
    page::{LAPTOP, PHONE, Page},
};

/// The text about the selected token, or an empty one.
const ATTENDED: &str = "document.querySelector('[data-testid=attended]').textContent.replaceAll('\\u00a0', ' ').trim()";
/// Indices of the shaded tokens.
const SHADED: &str =
    "[...document.querySelector('#tokens').children].flatMap((token, index) => token.dataset.grade ? [index] : [])";

async fn click_token(page: &Page, index: usize) {
    page.click(&format!("#tokens > :nth-child({})", index + 1)).await;
}

async fn select(page: &Page, id: &str, value: &str) {
    page.script(&format!(
        "const picker = document.querySelector('#{id}'); picker.value = {value:?};
         picker.dispatchEvent(new Event('change', {{ bubbles: true }}))"
    ))
    .await;
}

fn percent(weight: f32) -> String {
    format!("{:.1} %", (weight * 1000.0).round() / 10.0)
}

#[test]
fn a_token_shows_what_it_attends_to() {
    demo("a_token_shows_what_it_attends_to", &[], async |page| {
        let (config, params, model, tokenizer) = small_gpt2(&scratch("demo_attention"));
        choose(page, &[&model, &tokenizer]).await;
        let opened = "document.querySelector('[data-testid=model]')?.textContent === 'model.safetensors'";
        page.until("the model is loaded", &format!("{opened} && {READY}")).await;
        write(page, "the the<|endoftext|>t", 1, 4).await;
        // A token of the prompt.
        click_token(page, 2).await;
        page.until("its attention is there", &format!("{ATTENDED} !== ''")).await;
        assert!(page.text(".demo__candidates").await.contains("This token is from the prompt"));
        let mut decoder = Decoder::new(&config, &params, Storage::F32).expect("it fits");
        decoder.prefill(&[257, 258, 259]).expect("a prompt");
        let mut shown = Vec::new();
        for head in 0..usize::try_from(config.n_head()).expect("small") {
            select(page, "head", &head.to_string()).await;
            let weights = decoder.attention(0, head).expect("a head");
            for (name, weight) in ["the (2 back)", "·the (1 back)", "itself"].iter().zip(weights) {
                page.until_says(ATTENDED, &format!("{name} {}", percent(*weight))).await;
            }
            shown.push(page.value::<String>(ATTENDED).await);
        }
        assert!(shown.iter().all(|text| text.contains("<|endoftext|> attends to: ")), "{shown:?}");
        assert_eq!(page.value::<Vec<usize>>(SHADED).await, [0, 1, 2]);
        select(page, "head", "").await;
        page.until_says(ATTENDED, "Layer 0, mean of all heads.").await;
        // A second click on the token deselects it.
        click_token(page, 2).await;
        page.until("nothing is selected", &format!("{ATTENDED} === '' && {SHADED}.length === 0")).await;
    });
}

#[test]
fn tokens_are_selected_with_the_keyboard() {
    demo("tokens_are_selected_with_the_keyboard", &[], async |page| {
        // Beyond the context of 256 characters, whose window has moved on.
        write(page, "Once upon a time", 1, 420).await;
        page.script("document.querySelector('#tokens').focus()").await;
        page.press(&Key::Home).await;
        page.until_says(ATTENDED, "Layer 0, head 0. O attends to: itself 100.0 %.").await;
        page.press(&Key::Right).await;
        page.until_says(ATTENDED, "n attends to: ").await;
        page.until("both are shaded", &format!("{SHADED}.join() === '0,1'")).await;
        // The last token has attended to a part of the text only.
        page.press(&Key::End).await;
        page.until("the last is shaded", &format!("{SHADED}.at(-1) === 435 && {SHADED}[0] >= 256")).await;
        page.press(&Key::Escape).await;
        page.until("nothing is selected", &format!("{ATTENDED} === '' && {SHADED}.length === 0")).await;
    });
}

#[test]
fn a_look_at_a_token_leaves_the_text_that_is_written() {
    demo("a_look_at_a_token_leaves_the_text_that_is_written", &[], async |page| {
        let undisturbed = write(page, "Once upon a time", 3, 64).await;
        page.click("#slowly").await;
        page.click("#write").await;
        page.until("it writes", "document.querySelector('#tokens').children.length > 18").await;
        for token in [3, 18] {
            click_token(page, token).await;
            let shown = format!("{SHADED}.at(-1) === {token} && {ATTENDED} !== ''");
            page.until("its attention is there", &shown).await;
        }
        assert_eq!(page.text("#write").await, "Stop", "the text is not complete");
        page.click("#slowly").await;
        page.until("the text ends", "document.querySelector('[data-testid=ended]').textContent !== ''").await;
        assert_eq!(page.value::<String>("document.querySelector('#tokens').textContent").await, undisturbed);
    });
}

#[test]
fn all_heads_are_drawn_while_the_model_writes() {
    /// The cells of the last head's map.
    const LAST: &str = "document.querySelector('.heads__row:last-child label:last-child svg').innerHTML";
    const CELLS: &str =
        "[...document.querySelectorAll('MAP .map__grade')].map((path) => path.getAttribute('d')).join()";
    demo("all_heads_are_drawn_while_the_model_writes", &[], async |page| {
        page.click("#slowly").await;
        page.click("#write").await;
        page.until(
            "all heads are there",
            "document.querySelectorAll('[data-testid=heads] .heads__head').length === 16",
        )
        .await;
        page.until("the last one has cells", &format!("{LAST}.includes('map__grade')")).await;
        let first: String = page.value(LAST).await;
        page.until("it changes", &format!("{LAST} !== {first:?}")).await;
        assert_eq!(page.text("#write").await, "Stop", "the text is not complete");
        page.click("#write").await;
        page.until("the text ends", "document.querySelector('[data-testid=ended]').textContent !== ''").await;
        // A click selects the head of its row and column. Arrow keys go on from there.
        page.click(".heads__row:nth-of-type(4) label:nth-of-type(2)").await;
        for head in [1, 2] {
            let caption = format!("Layer 2, head {head}. One row per token");
            page.until_says("document.querySelector('[data-testid=map-caption]').textContent", &caption).await;
            let chosen = ["layer", "head"].map(|id| format!("document.querySelector('#{id}').value"));
            page.until("the lists agree", &format!("{} === '2' && {} === '{head}'", chosen[0], chosen[1])).await;
            let [large, small] = [".map", ".heads__head:has(:checked)"].map(|map| CELLS.replace("MAP", map));
            page.until("the large map is the same", &format!("{large} === {small}")).await;
            page.press(&Key::Right).await;
        }
    });
}

#[test]
fn a_selected_token_is_accessible_and_no_wider_than_its_window() {
    let Some(axe) = named("axe", "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    demo("a_selected_token_is_accessible_and_no_wider_than_its_window", &[], async |page| {
        write(page, "Once upon a time", 1, 40).await;
        click_token(page, 18).await;
        page.until("its attention is there", &format!("{ATTENDED} !== ''")).await;
        assert_accessible(page, &axe, &[LAPTOP, PHONE, (320, 640)]).await;
    });
}
