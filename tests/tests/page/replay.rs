//! The page that replays recordings.

use std::{fs, path::PathBuf, process::Command};

use serde_json::Value;

use crate::{
    accessible::{Rules, violations},
    environment::named,
    page::{LAPTOP, Page, tell, tell_unopened},
};

const HEADROOM: &str = "document.querySelector('#verdict').dataset.headroomBytes";
const PLANNED: &str = "document.querySelector('#verdict[data-fits]')";
const COMPUTED: &str = "document.querySelector('[data-testid=other-gpus]:not(.stale) tr')";

fn recording(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/recordings/{name}.headroom"))
}

/// The replay of the command line. A run that does not fit has another exit status.
fn replayed(page: &Page, name: &str, arguments: &[&str]) -> Value {
    let output = Command::new(&page.headroom).arg("replay").arg(recording(name)).args(arguments).arg("--json").output();
    serde_json::from_slice(&output.expect("headroom runs").stdout).expect("a replay as JSON")
}

/// Drops a recording onto the element with the selector.
async fn drop_on(page: &Page, selector: &str, name: &str, bytes: &[u8]) {
    let bytes = serde_json::to_string(bytes).expect("an array");
    let script = format!(
        "const data = new DataTransfer();
         data.items.add(new File([new Uint8Array({bytes})], '{name}'));
         for (const kind of ['dragover', 'drop'])
           document.querySelector('{selector}').dispatchEvent(
             new DragEvent(kind, {{ dataTransfer: data, bubbles: true, cancelable: true }}));"
    );
    page.script(&script).await;
}

async fn open(page: &Page, fragment: &str) {
    page.goto(&format!("{}replay.html{fragment}", page.address)).await;
    page.until("the page is there", "document.querySelector('#answer')").await;
}

async fn assert_shows(page: &Page, replay: &Value) {
    page.until("the replay is shown", &format!("{HEADROOM} === '{}'", replay["headroom_bytes"])).await;
    for phase in replay["phases"].as_array().expect("phases") {
        let name = phase["name"].as_str().expect("a name");
        let cells = format!(
            "[...document.querySelectorAll('#phases tr[data-phase={name}] td')].map((cell) => Number(cell.dataset.bytes))"
        );
        let shown: Vec<u64> = page.value(&cells).await;
        let bytes = ["live_bytes_peak", "max_memory_allocated", "max_memory_reserved"].map(|key| phase[key].as_u64());
        assert_eq!(shown.into_iter().map(Some).collect::<Vec<_>>(), bytes, "{name}");
    }
}

#[test]
fn a_recording_dropped_on_the_start_page_has_the_replay_of_the_command_line() {
    tell_unopened("a_recording_dropped_on_the_start_page_has_the_replay_of_the_command_line", async |page| {
        let bytes = fs::read(recording("nanogpt_124m")).expect("a recording");
        page.goto(&page.address).await;
        page.until("its script is there", "document.querySelector('#recent-runs .button, #anything')").await;
        page.until(
            "drops are read",
            "performance.getEntriesByType('resource').some((file) => file.name.includes('shortcuts'))",
        )
        .await;
        drop_on(page, "#anything", "train.headroom", &bytes).await;
        page.until("the page of recordings opens", "location.pathname.endsWith('replay.html')").await;
        page.until("the verdict is there", PLANNED).await;
        assert_eq!(page.text("[data-testid=recording-name]").await, "train.headroom");
        page.choose_gpu("GeForce RTX 3060 12GB").await;
        assert_shows(page, &replayed(page, "nanogpt_124m", &["--gpu", "RTX 3060"])).await;
        // A GPU on which it fails: the message, the source line, and what to do.
        page.choose_gpu("GeForce GTX 1060 6GB").await;
        let failing = replayed(page, "nanogpt_124m", &["--gpu", "GTX 1060 6GB"]);
        assert_shows(page, &failing).await;
        let source = failing["oom_source"].as_str().expect("a source line");
        assert!(page.text("[data-testid=failing-source]").await.contains(source));
        page.until("changes are listed", "document.querySelectorAll('[data-testid=replay-fixes] li').length > 3").await;
        // The setting changes the replay, the address has it, and a reload keeps the recording.
        page.click("#expandable_segments").await;
        let expandable = replayed(page, "nanogpt_124m", &["--gpu", "GTX 1060 6GB", "--expandable-segments"]);
        assert_shows(page, &expandable).await;
        page.until("the address has it", "location.hash.includes('GTX')").await;
        page.script("location.reload()").await;
        page.until("the verdict is there", PLANNED).await;
        assert_shows(page, &expandable).await;
    });
}

#[test]
fn every_gpu_has_its_replay() {
    tell_unopened("every_gpu_has_its_replay", async |page| {
        open(page, "#1&gpu=RTX%204090").await;
        page.click("#example").await;
        page.until("the verdict is there", PLANNED).await;
        page.until("every GPU is replayed", COMPUTED).await;
        page.click("[data-testid=other-gpus] .replay__all").await;
        let shown: Vec<(String, String)> = page
            .value("[...document.querySelectorAll('[data-testid=other-gpus] tr')].map((row) => [row.dataset.gpu, row.dataset.outcome])")
            .await;
        assert!(shown.len() > 100, "{}", shown.len());
        for (gpu, outcome) in shown.iter().step_by(23) {
            let replay = replayed(page, "nanogpt_124m", &["--gpu", gpu]);
            assert_eq!(replay["fits"].as_bool(), Some(outcome != "fails"), "{gpu}: {outcome}");
        }
        // A GPU of the list is selected.
        page.click("[data-testid=other-gpus] tr[data-gpu='Tesla T4'] button").await;
        assert_shows(page, &replayed(page, "nanogpt_124m", &["--gpu", "Tesla T4"])).await;
    });
}

#[test]
fn batch_size_of_a_series_is_a_field_with_the_largest_that_fits() {
    let name = "batch_size_of_a_series_is_a_field_with_the_largest_that_fits";
    tell_unopened(name, async |page| {
        let gpu = ["--gpu", "GTX 1060 6GB"];
        let of = |size: &str| replayed(page, "series/gpt2", &[&gpu[..], &["--batch-size", size]].concat());
        let bytes = fs::read(recording("series/gpt2")).expect("a recording");
        open(page, "#1&gpu=GTX%201060%206GB").await;
        drop_on(page, "main", "gpt2.headroom", &bytes).await;
        page.until("the verdict is there", PLANNED).await;
        assert_shows(page, &replayed(page, "series/gpt2", &gpu)).await;
        page.fill("#batch_size", "100").await;
        let failing = of("100");
        assert_shows(page, &failing).await;
        assert_eq!(failing["fits"], false);
        let largest = failing["largest_size_that_fits"].to_string();
        assert!(page.text("[data-testid=sizes]").await.contains(&largest));
        page.click("[data-fix=size] button").await;
        page.until("the field shows it", &format!("document.querySelector('#batch_size').value === '{largest}'")).await;
        let fitting = of(&largest);
        assert_eq!(fitting["fits"], true);
        assert_shows(page, &fitting).await;
        page.fill("#batch_size", "0").await;
        page.until_says("document.querySelector('#batch_size-fault').textContent", "1 or more").await;
        page.fill("#batch_size", "99999999").await;
        page.until_says("document.querySelector('#batch_size-fault').textContent", "larger than every GPU").await;
    });
}

#[test]
fn an_invalid_recording_keeps_the_open_one() {
    tell("an_invalid_recording_keeps_the_open_one", async |page| {
        page.click(".trainers [href*='replay.html']").await;
        page.until("the steps are there", "document.querySelector('[data-testid=empty]')").await;
        page.click("#example").await;
        page.until("the verdict is there", PLANNED).await;
        let before: String = page.value(HEADROOM).await;
        let bytes = fs::read(recording("nanochat")).expect("a recording");
        drop_on(page, "#chart", "cut.headroom", &bytes[..bytes.len() / 2]).await;
        page.until("it is refused", "document.querySelector('.notice')?.textContent.includes('cut.headroom')").await;
        assert_eq!(page.value::<String>(HEADROOM).await, before);
        assert_eq!(page.text("[data-testid=recording-name]").await, "nanogpt_124m.headroom");
    });
}

#[test]
fn every_window_shows_a_recording_without_scrolling_sideways() {
    let name = "every_window_shows_a_recording_without_scrolling_sideways";
    let Some(axe) = named(name, "HEADROOM_AXE") else { return };
    let axe = fs::read_to_string(axe).expect("axe-core's script");
    tell_unopened(name, async |page| {
        for language in ["en", "de", "ja", "zh"] {
            for is_open in [false, true] {
                page.script("try { sessionStorage.clear() } catch {}").await;
                open(page, &format!("?lang={language}#1&gpu=GTX%201060%206GB")).await;
                if is_open {
                    page.click("#example").await;
                    page.until("the verdict is there", PLANNED).await;
                    page.until("every GPU is replayed", COMPUTED).await;
                }
                for size in [(320, 700), (390, 844), (820, 1180), (1280, 800), (1920, 1080), (2560, 1440)] {
                    page.resize(size).await;
                    let beyond: i64 =
                        page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
                    assert!(beyond <= 0, "{language} {is_open} {size:?}: {beyond} px too wide");
                }
                page.resize(LAPTOP).await;
                if language == "en" {
                    page.script(&axe).await;
                    assert_eq!(violations(page, Rules::All).await, Vec::<String>::new(), "{is_open}");
                }
            }
        }
    });
}
