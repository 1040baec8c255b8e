//! A fix that needs a change to nanoGPT's code. The verdict, the config, the command, the link and its panel name it
//! until it is undone.

use crate::page::{PHONE, Page, tell};

/// A run that does not fit. Chunked cross-entropy is among the fixes that suffice.
const RUN: &str = "1&batch_size=16&gpu=RTX%204070&others=2GiB";
const CHANGES: &str = "document.querySelector('[data-testid=code-changes]')";
const NEEDS: &str = "needs 1 change to model.py: chunked cross-entropy";

async fn apply_chunked_loss(page: &Page) {
    page.open(RUN).await;
    let fix = "[data-fix=chunked_cross_entropy][data-fits=true]";
    page.until("the fix is offered", &format!("document.querySelector('.fixes:not(.stale) {fix}')")).await;
    page.click(&format!("{fix} button")).await;
    page.until("the run fits", "document.querySelector('#verdict').dataset.fits === 'true'").await;
}

/// Presses a button that copies, and returns the text.
pub async fn copied(page: &Page, id: &str) -> String {
    page.click(&format!("#{id}")).await;
    page.until("it is copied", &format!("document.querySelector('#{id}').textContent.includes('Copied')")).await;
    page.clipboard().await
}

#[test]
fn a_fix_that_needs_code_is_named_wherever_the_run_goes() {
    tell("a_fix_that_needs_code_is_named_wherever_the_run_goes", async |page| {
        apply_chunked_loss(page).await;
        let verdict = page.text("#verdict").await;
        assert!(verdict.contains("with 1 change to model.py: "), "{verdict}");
        let gpu = page.text("[data-testid=code-changes]").await;
        assert!(gpu.starts_with("Still to do") && gpu.contains("chunked cross-entropy"), "{gpu}");

        let patch = copied(page, "copy-patch").await;
        assert!(patch.starts_with("--- a/model.py\n+++ b/model.py\n@@ -185,4 "), "{patch}");
        assert_eq!(page.value::<String>("document.querySelector('[data-testid=patch]').textContent").await, patch);
        let address: String = page.value("document.querySelector('#download-patch').href").await;
        let data = format!("decodeURIComponent({address:?}.split(',').slice(1).join(','))");
        assert_eq!(page.value::<String>(&data).await, patch);
        let name: String = page.value("document.querySelector('#download-patch').download").await;
        assert_eq!(name, "headroom.patch");

        let config = copied(page, "copy-config").await;
        assert!(config.starts_with(&format!("# headroom (chunked_loss): {NEEDS}\n")), "{config}");
        let command = copied(page, "copy-command").await;
        assert!(command.starts_with(&format!("# headroom (chunked_loss): {NEEDS}\npython train.py ")), "{command}");
        let forum = copied(page, "copy-card").await;
        assert!(forum.contains("with 1 change to model.py: "), "{forum}");
        assert!(forum.contains("| needs | 1 change to model.py: chunked cross-entropy |"), "{forum}");

        // The link opens the same run with the same change.
        let link = copied(page, "copy-link").await;
        page.goto("about:blank").await;
        page.open_link(&link).await;
        assert_eq!(page.text("#verdict").await, verdict);
        page.until("the change is still to be made", CHANGES).await;
        let config: String = page.value("document.querySelector('#config').value").await;
        assert!(config.contains(NEEDS), "{config}");

        page.click("[data-testid=code-changes] li button").await;
        page.until("the run does not fit", "document.querySelector('#verdict').dataset.fits === 'false'").await;
        assert!(page.value::<bool>(&format!("{CHANGES} === null")).await);
        assert!(page.text("#verdict").await.starts_with("Does not fit: "));
        let config: String = page.value("document.querySelector('#config').value").await;
        assert!(!config.contains("headroom"), "{config}");
    });
}

#[test]
fn code_change_is_in_sight_after_its_fix() {
    tell("code_change_is_in_sight_after_its_fix", async |page| {
        // The points of the panel's first line that nothing covers and the window shows.
        let in_sight = format!(
            "(() => {{
                const box = {CHANGES}?.getBoundingClientRect();
                return !!box && [0.1, 0.5, 0.9].every((x) => {{
                    const at = document.elementFromPoint(box.left + box.width * x, box.top + 20);
                    return at !== null && {CHANGES}.contains(at);
                }});
            }})()"
        );
        for size in [(1280, 900), (1280, 720), (1024, 768), (800, 900), PHONE] {
            page.resize(size).await;
            apply_chunked_loss(page).await;
            page.until(&format!("{size:?} shows the change"), &in_sight).await;
            let focus: String = page.value("document.activeElement.id").await;
            assert_eq!(focus, "verdict", "{size:?}");
        }
    });
}

#[test]
fn given_vocabulary_is_named_wherever_the_run_goes() {
    tell("given_vocabulary_is_named_wherever_the_run_goes", async |page| {
        const COMMENT: &str = "# headroom (data): vocab_size = 65\n";
        page.open("1&gpu=RTX%204070").await;
        page.paste("#config", "batch_size = 4\nvocab_size = 65\n").await;
        page.until("the panel is there", CHANGES).await;
        let verdict = page.text("#verdict").await;
        assert!(verdict.starts_with("Fits with a vocabulary of 65: "), "{verdict}");
        let panel = page.text("[data-testid=code-changes]").await;
        assert!(panel.contains("The plan assumes a vocabulary of 65.") && panel.contains("meta.pkl"), "{panel}");
        let forum = copied(page, "copy-card").await;
        assert!(forum.contains("| needs | a vocabulary of 65 |"), "{forum}");
        assert_eq!(copied(page, "copy-command").await, format!("{COMMENT}python train.py --batch_size=4"));
        let link = copied(page, "copy-link").await;
        page.goto("about:blank").await;
        page.open_link(&link).await;
        assert_eq!(page.text("#verdict").await, verdict);

        // The command has the vocabulary in a comment, which the form edits.
        page.paste("#config", &format!("{COMMENT}python train.py --batch_size=4")).await;
        page.until("it is read", "document.querySelector('#vocab_size').value === '65'").await;
        assert_eq!(page.text("#verdict").await, verdict);
        page.fill("#vocab_size", "66").await;
        let config = "document.querySelector('#config').value";
        let edited = "# headroom (data): vocab_size = 66\\npython train.py --batch_size=4";
        page.until("the comment follows", &format!("{config} === '{edited}'")).await;
        page.click("[data-testid=code-changes] li button").await;
        page.until("the vocabulary is nanoGPT's", "document.querySelector('#vocab_size').value === '50304'").await;
        assert_eq!(page.value::<String>(config).await, "python train.py --batch_size=4");
        assert!(page.value::<bool>(&format!("{CHANGES} === null")).await);
    });
}

#[test]
fn variable_of_expandable_segments_is_named_wherever_the_run_goes() {
    tell("variable_of_expandable_segments_is_named_wherever_the_run_goes", async |page| {
        const VARIABLE: &str = "PYTORCH_ALLOC_CONF=expandable_segments:True";
        page.open("1&batch_size=8&gpu=RTX%204070&expandable=1").await;
        page.until("the panel is there", CHANGES).await;
        let verdict = page.text("#verdict").await;
        assert!(verdict.starts_with("Fits with expandable_segments: "), "{verdict}");
        let panel = page.text("[data-testid=code-changes]").await;
        assert!(panel.starts_with("Still to do") && panel.contains(VARIABLE), "{panel}");
        assert_eq!(copied(page, "copy-variable").await, format!("export {VARIABLE}\n"));
        let comment = format!("# headroom (expandable): needs {VARIABLE}\n");
        let config = copied(page, "copy-config").await;
        assert!(config.starts_with(&comment), "{config}");
        let command = copied(page, "copy-command").await;
        assert!(command.starts_with(&format!("{VARIABLE} python train.py")), "{command}");
        let forum = copied(page, "copy-card").await;
        assert!(forum.contains(&format!("| needs | {VARIABLE} |")), "{forum}");
        let link = copied(page, "copy-link").await;
        page.goto("about:blank").await;
        page.open_link(&link).await;
        page.until("the variable is still to be set", CHANGES).await;
        assert_eq!(page.text("#verdict").await, verdict);
        page.click("[data-testid=code-changes] li button").await;
        page.until("the panel is gone", &format!("{CHANGES} === null")).await;
        assert!(page.text("#verdict").await.starts_with("Fits: "));
        let config: String = page.value("document.querySelector('#config').value").await;
        assert!(!config.contains("headroom"), "{config}");
    });
}

#[test]
fn a_phone_reaches_the_patch_and_the_way_back() {
    tell("a_phone_reaches_the_patch_and_the_way_back", async |page| {
        page.resize(PHONE).await;
        apply_chunked_loss(page).await;
        let reached = "['#copy-patch', '#download-patch', '[data-testid=code-changes] li button'].every((selector) => {
            const button = document.querySelector(selector);
            button.scrollIntoView({ block: 'center' });
            const box = button.getBoundingClientRect();
            const at = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
            return box.left >= 0 && box.right <= innerWidth && button.contains(at);
        })";
        assert!(page.value::<bool>(reached).await);
        let before_the_chart = "document.querySelector('[data-testid=code-changes]').getBoundingClientRect().top
            < document.querySelector('.chart').getBoundingClientRect().top";
        assert!(page.value::<bool>(before_the_chart).await);
    });
}
