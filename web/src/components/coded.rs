//! Text that contains code.

use leptos::prelude::*;

/// Renders a text whose parts between backticks are code.
pub fn coded(text: &str) -> impl IntoView + use<> {
    let part = |(index, part): (usize, &str)| match index % 2 {
        0 => part.to_owned().into_any(),
        _ => view! { <code>{part.to_owned()}</code> }.into_any(),
    };
    text.split('`').enumerate().map(part).collect::<Vec<_>>()
}
