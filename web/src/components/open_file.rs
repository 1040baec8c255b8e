//! Opening a local file, such as the config file that a run names.

use headroom_planner::nanogpt::MAX_SOURCE_BYTES;
use leptos::{prelude::*, task::spawn_local};
use web_sys::File;

use crate::{
    browser,
    state::{budget::Budget, no_plan::with_file},
    text::{self, say},
};

/// Reads a file into the session. `is_meant` means that the file is the missing config, whatever its name.
pub fn open(budget: Budget, file: Option<File>, is_meant: bool) {
    read_file(file, move |name, text| match text {
        Some(text) => {
            let with = budget.session.with_untracked(|session| with_file(&session.text, &name, text, is_meant));
            budget.take_text(with);
        }
        None => budget.notice.set(Some(text::FILE_TOO_LARGE.into())),
    });
}

/// Reads a file and calls `taken` with its name and its text. The text is `None` if the file is too large or cannot be
/// read.
pub fn read_file(file: Option<File>, taken: impl FnOnce(String, Option<String>) + 'static) {
    let Some(file) = file else { return };
    let name = file.name();
    spawn_local(async move { taken(name, browser::file_text(file, MAX_SOURCE_BYTES as f64).await) });
}

/// A button that opens a config file which the run names.
#[component]
pub fn OpenNamed(
    /// The name of the config file.
    name: String,
    /// Called with the selected file.
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
