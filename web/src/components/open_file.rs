//! A file from the person's disk, for the config that a run names.

use headroom_shared::nanogpt::MAX_SOURCE_BYTES;
use leptos::{prelude::*, task::spawn_local};
use web_sys::File;

use crate::{
    browser,
    state::{budget::Budget, no_plan::with_file},
    text::{self, say},
};

/// Reads a file into the session. `is_meant` is whether it is for the config that is missing, whatever its name.
pub fn open(budget: Budget, file: Option<File>, is_meant: bool) {
    read_file(file, move |name, text| match text {
        Some(text) => budget.session.update(|session| {
            let with = with_file(&session.text, &name, text, is_meant);
            session.set_text(with);
        }),
        None => budget.notice.set(Some(text::FILE_TOO_LARGE.into())),
    });
}

/// Reads a file and hands on its name and its text, `None` where it is too large.
pub fn read_file(file: Option<File>, taken: impl FnOnce(String, Option<String>) + 'static) {
    let Some(file) = file else { return };
    let name = file.name();
    spawn_local(async move { taken(name, browser::file_text(file, MAX_SOURCE_BYTES as f64).await) });
}

/// The button that opens a config which was named and not read.
#[component]
pub fn OpenNamed(
    /// The config's name.
    name: String,
    /// Takes the file.
    opened: Callback<Option<File>>,
) -> impl IntoView {
    view! {
        <label class="button button--primary verdict__open" data-testid="open-named">
            <input type="file" id="open-named" class="visually-hidden" accept=".py,.txt"
                on:change:target=move |event| {
                    opened.run(event.target().files().and_then(|files| files.get(0)));
                    event.target().set_value("");
                } />
            <span>{say(&text::open_named(name))}</span>
        </label>
    }
}
