//! View logic of the pages: plain values and pure functions, tested natively. This module never touches the browser.

pub mod answer;
pub mod budget;
pub mod builtin;
pub mod burst;
pub mod chart;
pub mod command;
pub mod course;
pub mod demo;
pub mod diagnosis;
pub mod edit;
pub mod entry;
pub mod excerpt;
pub mod fields;
pub mod fixes;
pub mod format;
pub mod gpu;
pub mod needs;
pub mod no_plan;
pub mod pasted;
pub mod places;
pub mod presets;
pub mod rig;
pub mod rig_charts;
pub mod sentence;
pub mod session;
pub mod share;
pub mod snippet;
pub mod solving;
pub mod tensors;
pub mod verdict;

use std::cell::{OnceCell, RefCell};

use headroom_planner::{
    nanogpt::{PastedConfig, Settings, from_pasted_text},
    session::check_parameters,
};

/// The name of an unnamed config in messages.
pub const CONFIG_NAME: &str = "config.py";

/// Parses a text of a field, which has no file name.
pub fn parse(text: &str) -> PastedConfig {
    with_last_read(text, |last| last.pasted.clone())
}

/// Reads the settings of a text of a field, without a check of their number of parameters.
pub fn read_unchecked(text: &str) -> Settings {
    with_last_read(text, |last| last.settings().clone())
}

/// Reads the settings of a text of a field.
pub fn read_settings(text: &str) -> Settings {
    with_last_read(text, |last| last.checked().clone())
}

/// The text that was read last. One change of a field reads the same text for the answer, the address and the comments,
/// and a text of several megabytes takes a second.
struct LastRead {
    text: String,
    pasted: PastedConfig,
    settings: OnceCell<Settings>,
    checked: OnceCell<Settings>,
}

impl LastRead {
    fn settings(&self) -> &Settings {
        self.settings.get_or_init(|| self.pasted.read())
    }

    fn checked(&self) -> &Settings {
        self.checked.get_or_init(|| {
            let mut settings = self.settings().clone();
            check_parameters(&mut settings);
            settings
        })
    }
}

thread_local! {
    static LAST_READ: RefCell<Option<LastRead>> = const { RefCell::new(None) };
}

fn with_last_read<T>(text: &str, get: impl FnOnce(&LastRead) -> T) -> T {
    LAST_READ.with_borrow_mut(|last| {
        let last = match last.take() {
            Some(same) if same.text == text => last.insert(same),
            _ => last.insert(LastRead {
                text: text.to_owned(),
                pasted: from_pasted_text(CONFIG_NAME, text),
                settings: OnceCell::new(),
                checked: OnceCell::new(),
            }),
        };
        get(last)
    })
}
