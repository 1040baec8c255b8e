//! The page as plain files on a static host, in a subdirectory.

use crate::{
    TRAIN_GPT2,
    environment::Means,
    page::{tell, tell_at},
    plain_host::PlainHost,
};

#[test]
fn plain_files_in_a_folder_answer_the_same() {
    let test = "plain_files_in_a_folder_answer_the_same";
    let Some(means) = Means::of(test) else { return };
    let mut served = None;
    tell(test, async |page| {
        page.paste("#config", TRAIN_GPT2).await;
        page.choose_gpu("GeForce RTX 3060 12GB").await;
        page.click("#copy-link").await;
        let link = page.clipboard().await;
        served = Some((link.split_once('#').expect("a fragment").1.to_owned(), page.numbers().await));
    });
    let (fragment, numbers) = served.expect("the page was served");
    let host = PlainHost::start(&means.dist);
    tell_at(test, &means, &host.address, None, async |page| {
        page.open(&fragment).await;
        crate::numbers::assert_same(&numbers, &page.numbers().await);
    });
    host.assert_complete();
}
