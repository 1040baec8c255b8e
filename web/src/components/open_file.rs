//! Opening a local file, such as the config file that a run names.

use headroom_planner::nanogpt::MAX_SOURCE_BYTES;
use headroom_text::Text;
use leptos::{prelude::*, task::spawn_local};
use web_sys::File;

use crate::{
    browser,
    state::{budget::Budget, no_plan::with_file, session::ConfigFile},
    text::{self, say},
};

/// Reads a file into the session. `is_meant` means that the file is the missing config, whatever its name.
pub fn open(budget: Budget, file: Option<File>, is_meant: bool) {
    read_file(file, move |name, read| match read {
        Ok(text) => {
            let with = budget.session.with_untracked(|session| with_file(&session.text, &name, &text, is_meant));
            let notice = with.other_name.map(|named| text::used_as(name.as_str(), named.as_str()));
            match with.text {
                Some(text) => budget.take_text(text),
                None => budget.take_file(ConfigFile { name, text }),
            }
            budget.notice.set(notice);
        }
        Err(reason) => budget.notice.set(Some(reason)),
    });
}

/// Reads a file and calls `taken` with its name and its text, or with the reason why it is not read.
pub fn read_file(file: Option<File>, taken: impl FnOnce(String, Result<String, Text>) + 'static) {
    let Some(file) = file else { return };
    let name = file.name();
    if file.size() > MAX_SOURCE_BYTES as f64 {
        return taken(name, Err(text::FILE_TOO_LARGE.into()));
    }
    spawn_local(async move {
        // Images and checkpoints have bytes that no text has.
        let text = browser::file_text(file).await.filter(|text| !text.contains('\0'));
        let read = text.ok_or_else(|| text::file_not_text(name.as_str()));
        taken(name, read);
    });
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
