//! A fix that needs a change to nanoGPT's code: named in the verdict, the config, the command, the link and the card,
//! until it is undone.

use crate::page::{PHONE, Page, tell};

/// Does not fit as it is. Chunked cross-entropy is among the fixes that suffice.
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

async fn copied(page: &Page, id: &str) -> String {
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
        let card = page.text("[data-testid=code-changes]").await;
        assert!(card.starts_with("You still have to") && card.contains("chunked cross-entropy"), "{card}");

        let patch = copied(page, "copy-patch").await;
        assert!(patch.starts_with("--- a/model.py\n+++ b/model.py\n@@ -185,4 "), "{patch}");
        assert_eq!(page.value::<String>("document.querySelector('[data-testid=patch]').textContent").await, patch);
        let address: String = page.value("document.querySelector('#download-patch').href").await;
        let data = format!("decodeURIComponent({address:?}.split(',').slice(1).join(','))");
        assert_eq!(page.value::<String>(&data).await, patch);
        let name: String = page.value("document.querySelector('#download-patch').download").await;
        assert_eq!(name, "headroom.patch");

        let config = copied(page, "copy-config").await;
        assert!(config.starts_with(&format!("# headroom (code): {NEEDS}\n")), "{config}");
        let command = copied(page, "copy-command").await;
        assert!(command.starts_with(&format!("# headroom (code): {NEEDS}\npython train.py ")), "{command}");
        let forum = copied(page, "copy-card").await;
        assert!(forum.contains("with 1 change to model.py: "), "{forum}");
        assert!(forum.contains("| needs | 1 change to model.py: chunked cross-entropy |"), "{forum}");

        // The link opens to the same, and the same change.
        let link = copied(page, "copy-link").await;
        page.browser.driver.goto("about:blank").await.expect("a page");
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
