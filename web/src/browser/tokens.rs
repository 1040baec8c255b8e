//! The elements of a text's tokens: one span each, which an index identifies.

use leptos::prelude::document;
use wasm_bindgen::JsCast;
use web_sys::{Element, EventTarget};

use super::has_focus;

const GRADE: &str = "data-grade";
const INDEX: &str = "data-index";

/// Appends a span with a text and an index.
pub fn append_span(into: &Element, words: &str, class: &str, index: usize) {
    let Ok(span) = document().create_element("span") else { return };
    span.set_text_content(Some(words));
    span.set_class_name(class);
    drop(span.set_attribute(INDEX, &index.to_string()));
    drop(into.append_child(&span));
}

/// Reports whether a scrolling element is at its end, within 40 pixels.
pub fn is_at_end(element: &Element) -> bool {
    element.scroll_top() + element.client_height() + 40 >= element.scroll_height()
}

/// Marks one child as current, and no other.
pub fn mark_child(of: &Element, index: Option<usize>) {
    if let Ok(Some(marked)) = of.query_selector("[aria-current]") {
        drop(marked.remove_attribute("aria-current"));
    }
    let child = index.and_then(|index| of.children().item(u32::try_from(index).ok()?));
    let Some(child) = child else { return };
    drop(child.set_attribute("aria-current", "true"));
    // Scrolls only while the list has the focus, that is, for keyboard users.
    if has_focus(of) {
        let (around, at) = (of.get_bounding_client_rect(), child.get_bounding_client_rect());
        let beyond = (at.bottom() - around.bottom()).max(0.0) + (at.top() - around.top()).min(0.0);
        #[expect(clippy::cast_possible_truncation, reason = "a scroll position in pixels")]
        of.set_scroll_top(of.scroll_top() + beyond as i32);
    }
}

/// Sets the shades of the children from `first` on, and removes all others. Shade 0 means no shade.
pub fn shade_children(of: &Element, first: usize, grades: &[usize]) {
    let children = of.children();
    for (place, index) in (0..children.length()).zip(0_usize..) {
        let Some(child) = children.item(place) else { continue };
        let grade = index.checked_sub(first).and_then(|index| grades.get(index)).filter(|grade| **grade > 0);
        let done = match grade {
            Some(grade) => child.set_attribute(GRADE, &grade.to_string()),
            None => child.remove_attribute(GRADE),
        };
        debug_assert!(done.is_ok(), "the attribute's name is valid");
    }
}

/// Returns the index of the span that an event refers to.
pub fn index_at(target: Option<EventTarget>) -> Option<usize> {
    target?.dyn_into::<Element>().ok()?.get_attribute(INDEX)?.parse().ok()
}
