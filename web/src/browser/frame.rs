//! The calculator as a frame in somebody's page: what it knows of that page, and the two messages between them.
//!
//! `headroom-calculator.js` is the other side. A message goes to the one origin that the frame's address names, and is
//! taken only from the window around the frame at that origin; never to or from just anyone.

use js_sys::{Object, Reflect};
use leptos::prelude::{document, window};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use web_sys::{Element, MessageEvent, MutationObserver, MutationObserverInit, ResizeObserver, UrlSearchParams};

/// The origin of the page around us, as our address names it; `None` where we are opened as a page. Empty where it has
/// none, as a file.
pub fn host() -> Option<String> {
    let query = UrlSearchParams::new_with_str(&window().location().search().ok()?).ok()?;
    let host = query.get("host")?;
    // "*" would be everyone, and "/" ourselves.
    Some(if host.contains("://") { host } else { String::new() })
}

/// Lets what is behind the frame show through.
pub fn show_as_frame() {
    if let Some(root) = document().document_element() {
        root.set_class_name("framed");
    }
}

/// Keeps the page around us told of an element's height, and follows the theme it names.
pub fn talk(host: String, element: &Element) {
    // Opened by itself, there is nobody around it.
    let is_alone = window().parent().ok().flatten().is_none_or(|parent| Object::is(&parent, &window()));
    if host.is_empty() || is_alone {
        return;
    }
    follow_theme(host.clone());
    let mut told = 0.0;
    let look: Closure<dyn FnMut()> = Closure::new({
        let element = element.clone();
        move || {
            let height = element.get_bounding_client_rect().height().ceil();
            if height > 0.0 && height != told {
                told = height;
                tell(&host, "height", height);
            }
        }
    });
    let look: js_sys::Function = look.into_js_value().unchecked_into();
    drop(look.call0(&JsValue::NULL));
    // The one sees every change of size but sleeps while the frame is out of sight, as browsers let such frames rest;
    // the other sees what the program changes then, so that nothing moves once the frame comes into sight.
    if let Ok(resized) = ResizeObserver::new(&look) {
        resized.observe(element);
    }
    if let Ok(changed) = MutationObserver::new(&look) {
        let what = MutationObserverInit::new();
        what.set_child_list(true);
        what.set_character_data(true);
        what.set_subtree(true);
        drop(changed.observe_with_options(element, &what));
    }
}

fn tell(host: &str, what: &str, value: f64) {
    let message = Object::new();
    for (key, value) in [("headroom", JsValue::from_str(what)), ("value", JsValue::from_f64(value))] {
        drop(Reflect::set(&message, &JsValue::from_str(key), &value));
    }
    if let Ok(Some(parent)) = window().parent() {
        // Refused where the address names no origin: then nobody is told.
        drop(parent.post_message(&message, host));
    }
}

fn follow_theme(host: String) {
    let heard = move |event: MessageEvent| {
        let parent = window().parent().ok().flatten();
        let is_from_parent =
            event.source().is_some_and(|source| parent.is_some_and(|parent| Object::is(&source, &parent)));
        if !is_from_parent || event.origin() != host {
            return;
        }
        let said = |key: &str| Reflect::get(&event.data(), &JsValue::from_str(key)).ok()?.as_string();
        if said("headroom").as_deref() == Some("theme")
            && let Some(theme @ ("light" | "dark")) = said("value").as_deref()
            && let Some(root) = document().document_element()
        {
            drop(root.set_attribute("data-theme", theme));
        }
    };
    super::listen("message", &Closure::<dyn FnMut(MessageEvent)>::new(heard).into_js_value());
}
