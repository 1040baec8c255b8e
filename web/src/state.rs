//! View logic of the pages: plain values and pure functions, tested natively. This module never touches the browser.

pub mod answer;
pub mod batch_strip;
pub mod budget;
pub mod builtin;
pub mod burst;
pub mod chart;
pub mod command;
pub mod compare;
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
pub mod gpu_table;
pub mod listed_run;
pub mod memo;
pub mod needs;
pub mod no_plan;
pub mod pasted;
pub mod places;
pub mod presets;
pub mod recognized;
pub mod replay;
pub mod rig;
pub mod rig_charts;
pub mod run_answer;
pub mod sentence;
pub mod session;
pub mod share;
pub mod shown;
pub mod snippet;
pub mod solving;
pub mod steps;
pub mod tensors;
pub mod trainer;
pub mod trainer_form;
pub mod trainer_text;
pub mod verdict;

use std::{cell::RefCell, rc::Rc};

use headroom_planner::{
    nanogpt::{PastedConfig, Settings, from_pasted_text},
    session::check_parameters,
};

/// The name of an unnamed config in messages.
pub const CONFIG_NAME: &str = "config.py";

/// Parses a text of a field, which has no file name.
pub fn parse(text: &str) -> PastedConfig {
    from_pasted_text(CONFIG_NAME, text)
}

thread_local! {
    /// The text of the last call of [`read_settings`], and its settings. An edit reads the same text for its check, the
    /// comments and the address, and a text of several megabytes takes a second.
    static LAST_READ: RefCell<Option<(String, Rc<Settings>)>> = const { RefCell::new(None) };
}

/// Reads the settings of a text of a field.
pub fn read_settings(text: &str) -> Rc<Settings> {
    LAST_READ.with_borrow_mut(|last| match last {
        Some((same, settings)) if same == text => Rc::clone(settings),
        _ => {
            let mut settings = parse(text).read();
            check_parameters(&mut settings);
            let settings = Rc::new(settings);
            *last = Some((text.to_owned(), Rc::clone(&settings)));
            settings
        }
    })
}
