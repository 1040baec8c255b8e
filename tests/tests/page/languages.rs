//! Every page in every language, chosen by the browser, the address or the user. No text stays in English.

use crate::{
    code_changes::copied,
    page::{LAPTOP, PHONE, Page, tell, tell_unopened},
};
use headroom_languages::{packed, table};
use headroom_text::{self as text, Key, LANGUAGES, Language};
use serde_json::json;
use std::collections::BTreeSet;

const RUN: &str = "1&batch_size=64&gradient_accumulation_steps=1&gpu=RTX%204070&others=2GiB";
const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of \
    11.69 GiB of which 2.68 GiB is free. Including non-PyTorch memory, this process has 7.04 GiB memory in use. Of the \
    allocated memory 6.78 GiB is allocated by PyTorch, and 73.00 MiB is reserved by PyTorch but unallocated.";

/// Sets the languages that the browser requests.
async fn read(page: &Page, languages: &str) {
    let agent: String = page.value("navigator.userAgent").await;
    page.cdp("Emulation.setUserAgentOverride", json!({ "userAgent": agent, "acceptLanguage": languages })).await;
}

async fn language(page: &Page) -> String {
    page.value("document.documentElement.lang").await
}

async fn says(page: &Page, selector: &str, language: &Language, key: Key) {
    let expected = table(language.code).word(key).to_owned();
    page.until(
        &format!("{selector} says {expected:?}"),
        &format!("document.querySelector({selector:?})?.textContent === {expected:?}"),
    )
    .await;
}

/// Returns every text that a user can see, hear or hover over, except a model's text.
async fn all_words(page: &Page) -> BTreeSet<String> {
    let script =
        "[...document.querySelectorAll('body *:not(.token, .candidate__name, .map__name)')].flatMap((element) => [
          ...[...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()),
          ...['aria-label', 'title', 'placeholder', 'aria-description'].map((name) => element.getAttribute(name) ?? ''),
        ]).filter((words) => words !== '')";
    page.value::<Vec<String>>(script).await.into_iter().collect()
}

/// Returns English texts that differ in the other language.
fn english_left(words: &BTreeSet<String>, language: &Language) -> Vec<String> {
    let lines = |language: &Language| -> Vec<String> {
        ["budget", "compare", "demo", "diagnose", "embed", "gpus", "trainers"]
            .iter()
            .flat_map(|page| packed(language, page).split('\n').map(str::to_owned).collect::<Vec<_>>())
            .collect()
    };
    if let Some(missing) = words.iter().find(|words| words.contains(text::NOT_FETCHED)) {
        return vec![format!("a text was not fetched: {missing}")];
    }
    let (english, own) = (lines(&LANGUAGES[0]), lines(language));
    let pairs = english.into_iter().zip(&own);
    let mut differ: BTreeSet<String> =
        pairs.filter(|(english, own)| english != *own).map(|(english, _)| english).collect();
    // A word such as GPU may be the own word of another text.
    differ.retain(|english| !own.contains(english));
    words.iter().filter(|words| differ.contains(*words)).cloned().collect()
}

#[test]
fn the_browsers_language_is_taken_and_no_word_is_left_in_english() {
    tell("the_browsers_language_is_taken_and_no_word_is_left_in_english", async |page| {
        for (asked, language_of_page) in [("zh-CN,zh", 1), ("ja", 2), ("de-AT,de,en", 3), ("fr,it", 0), ("pt,de", 3)] {
            read(page, asked).await;
            let spoken = &LANGUAGES[language_of_page];
            page.open("").await;
            page.open(RUN).await;
            assert_eq!(language(page).await, spoken.code, "{asked}");
            says(page, "#copy-command > span", spoken, text::COPY_COMMAND).await;
            assert_eq!(page.value::<String>("document.title").await, table(spoken.code).word(text::TITLE_BUDGET));
            page.until("fixes are there", "document.querySelector('.fixes:not(.stale) [data-fix]')").await;
            page.value::<bool>("(document.querySelector('#more').open = true)").await;
            let left = english_left(&all_words(page).await, spoken);
            assert!(left.is_empty(), "{}: {left:?}", spoken.code);
        }
    });
}

#[test]
fn the_other_pages_speak_every_language_too() {
    tell_unopened("the_other_pages_speak_every_language_too", async |page| {
        for spoken in &LANGUAGES[1..] {
            let at = |name: &str| format!("{}{name}?lang={}", page.address, spoken.code);
            page.goto(&at("diagnose.html")).await;
            page.until("the field is there", "document.querySelector('#message')").await;
            page.paste("#message", MESSAGE).await;
            page.until("it is explained", "document.querySelector('[data-testid=explanation]')").await;
            let words = all_words(page).await;
            let left = english_left(&words, spoken);
            assert!(left.is_empty(), "{}: {left:?}", spoken.code);
            // A run with fixes. A text with an error would have none.
            page.paste("#config", "batch_size = 64\ngradient_accumulation_steps = 1\nfoo = bar(2)\n").await;
            page.until("fixes are there", "document.querySelector('[data-fix] summary')").await;
            let left = english_left(&all_words(page).await, spoken);
            assert!(left.is_empty(), "{}: {left:?}", spoken.code);
            let size = table(spoken.code).number("6.14 GiB");
            assert!(words.iter().any(|words| words.contains(&size)), "{}: {words:?}", spoken.code);

            page.goto(&at("demo.html")).await;
            let can_write = "document.querySelector('#write')?.disabled === false";
            page.until("the model is loaded", can_write).await;
            page.fill("#n-tokens", "30").await;
            page.click("#write").await;
            page.until("the map is there", "document.querySelector('[data-testid=map]')").await;
            let left = english_left(&all_words(page).await, spoken);
            assert!(left.is_empty(), "{}: {left:?}", spoken.code);
            let broken = concat!(env!("CARGO_TARGET_TMPDIR"), "/broken.safetensors");
            std::fs::write(broken, "no weights").expect("space");
            page.find("#model-file").await.send_keys(broken).await.expect("the file is chosen");
            page.until("it is refused", "document.querySelector('[data-testid=failure]')").await;
            let left = english_left(&all_words(page).await, spoken);
            assert!(left.is_empty(), "{}: {left:?}", spoken.code);

            page.goto(&at("embed.html")).await;
            page.until("the lines are there", "document.querySelector('#snippet')?.textContent.includes('</')").await;
            let said = page.text("#snippet").await;
            assert!(said.contains(&format!("lang=\"{}\"", spoken.code)), "{said}");
            let left = english_left(&all_words(page).await, spoken);
            assert!(left.is_empty(), "{}: {left:?}", spoken.code);

            page.goto(&at("gpus.html")).await;
            page.until("the GPUs are there", "document.querySelector('[data-testid=gpus]')").await;
            let left = english_left(&all_words(page).await, spoken);
            assert!(left.is_empty(), "{}: {left:?}", spoken.code);

            page.goto(&format!("{}#1&batch_size=4&against=1%26batch_size%3D64", at("compare.html"))).await;
            page.until("fixes are there", "document.querySelector('.fixes:not(.stale) [data-fix]')").await;
            page.value::<bool>("(document.querySelector('#more').open = true)").await;
            let left = english_left(&all_words(page).await, spoken);
            assert!(left.is_empty(), "{}: {left:?}", spoken.code);

            // The calculator in a host page. A link with an unknown key shows a notice.
            let framed = format!("?host=https%3A%2F%2Fdocs.example&lang={}#{RUN}&a%20b=1", spoken.code);
            page.open_link(&format!("{}embed.html{framed}", page.address)).await;
            page.until("fixes are there", "document.querySelector('.fixes:not(.stale) [data-fix]')").await;
            page.until("the notice is there", "document.querySelector('#notice')").await;
            let left = english_left(&all_words(page).await, spoken);
            assert!(left.is_empty(), "{}: {left:?}", spoken.code);
        }
    });
}

#[test]
fn a_language_that_is_chosen_keeps_the_run_and_stays() {
    tell("a_language_that_is_chosen_keeps_the_run_and_stays", async |page| {
        page.open(RUN).await;
        page.paste("#config", "# mine\nbatch_size = 64\n").await;
        let choose = "const list = document.querySelector('#language'); list.value = 'de';
                      list.dispatchEvent(new Event('change', { bubbles: true }))";
        page.script(choose).await;
        page.until(
            "it is German",
            "document.documentElement.lang === 'de' && document.querySelector('#verdict[data-fits]')",
        )
        .await;
        assert_eq!(page.value::<String>("location.search").await, "?lang=de");
        let config: String = page.value("document.querySelector('#config').value").await;
        assert_eq!(config, "# mine\nbatch_size = 64\n");
        let verdict = page.text("#verdict").await;
        assert!(verdict.contains(",") && !verdict.contains("short"), "{verdict}");

        // The link contains the language, and nothing else of the query.
        page.open_link(&format!("{}calculator.html?lang=de&token=secret#{RUN}", page.address)).await;
        page.click("#copy-link").await;
        let said = format!("'{}'", table("de").word(text::COPIED));
        page.until("it is copied", &format!("document.querySelector('#copy-link').textContent.includes({said})")).await;
        let link = page.clipboard().await;
        assert!(
            link.starts_with(&format!("{}calculator.html?lang=de#1&", page.address)) && !link.contains("secret"),
            "{link}"
        );
        let next: String =
            page.value("document.querySelector('.header__pages a:nth-child(2)').getAttribute('href')").await;
        // The run follows the language in the link.
        assert!(next.starts_with("./diagnose.html?lang=de#1&") && !next.contains("secret"), "{next}");

        // A later visit uses the chosen language. A language in the address takes precedence.
        page.open("").await;
        assert_eq!(language(page).await, "de");
        page.open_link(&format!("{}calculator.html?lang=en", page.address)).await;
        assert_eq!(language(page).await, "en");
    });
}

#[test]
fn pasted_text_survives_language_change() {
    tell_unopened("pasted_text_survives_language_change", async |page| {
        page.open_diagnose().await;
        page.paste("#message", MESSAGE).await;
        page.paste("#config", "batch_size = 64\ngradient_accumulation_steps = 1\n").await;
        let choose = "const list = document.querySelector('#language'); list.value = 'ja';
                      list.dispatchEvent(new Event('change', { bubbles: true }))";
        page.script(choose).await;
        page.until("it is Japanese", "document.documentElement.lang === 'ja' && document.querySelector('#message')")
            .await;
        says(page, "[data-testid=agreement]", &LANGUAGES[2], text::REQUESTED_AND_ALLOCATED_MATCH).await;
        assert_eq!(page.value::<String>("document.querySelector('#message').value").await, MESSAGE);
    });
}

#[test]
fn no_language_makes_a_page_wider_than_its_window() {
    tell("no_language_makes_a_page_wider_than_its_window", async |page| {
        for size in [(360, 740), PHONE, (768, 1024), LAPTOP, (1920, 1080)] {
            page.resize(size).await;
            for spoken in &LANGUAGES {
                page.open_link(&format!("{}calculator.html?lang={}#{RUN}", page.address, spoken.code)).await;
                let wide: i64 = page.value("document.documentElement.scrollWidth - innerWidth").await;
                assert!(wide <= 0, "{} at {size:?}: {wide} too wide", spoken.code);
                // The header's controls stay within the window and do not overlap.
                let cut: Vec<String> = page
                    .value(
                        "[...document.querySelectorAll('.header a, .header select, .header fieldset, .verdict .button')]
                           .filter((e) => e.offsetWidth > 0 && e.getBoundingClientRect().right > innerWidth + 1
                             && !e.classList.contains('header__skip')).map((e) => e.textContent)",
                    )
                    .await;
                assert!(cut.is_empty(), "{} at {size:?}: {cut:?}", spoken.code);
            }
        }
    });
}

#[test]
fn a_card_for_forums_and_the_config_are_taken_along() {
    tell("a_card_for_forums_and_the_config_are_taken_along", async |page| {
        page.open(RUN).await;
        let gpu = copied(page, "copy-card").await;
        let link = format!("({}calculator.html#1&", page.address);
        assert!(gpu.starts_with("**Does not fit: ") && gpu.contains("| best fix | `batch_size = 8, "), "{gpu}");
        assert!(gpu.contains(&link), "{gpu}");

        page.paste("#config", "# ä and #, 100 %\nbatch_size = 8\n").await;
        page.script("addEventListener('click', (event) => { event.preventDefault(); window.got = event.target.closest('a').href })")
            .await;
        page.click("#download-config").await;
        page.until("there is an address", "window.got").await;
        assert_eq!(
            page.promise("decodeURIComponent(window.got.split(',').slice(1).join(','))").await,
            json!("# ä and #, 100 %\nbatch_size = 8\n")
        );
        let name: String = page.value("document.querySelector('#download-config').download").await;
        assert_eq!(name, "config.py");
    });
}
