//! Communication between the embedded calculator and its host page.
//!
//! `headroom-calculator.js` is the other side. Messages go only to the origin named in the frame's address. They are
//! accepted only from the parent window at that origin.

use js_sys::{Object, Reflect};
use leptos::prelude::{document, window};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use web_sys::{Element, MessageEvent, MutationObserver, MutationObserverInit, ResizeObserver, UrlSearchParams};

/// Returns the host page's origin from the frame's address, or `None` if the page is not embedded. The result is empty
/// if the host has no origin, such as a local file.
pub fn host() -> Option<String> {
    let query = UrlSearchParams::new_with_str(&window().location().search().ok()?).ok()?;
    let host = query.get("host")?;
    // The target "*" would address every origin, and "/" this page itself.
    Some(if host.contains("://") { host } else { String::new() })
}

/// Makes the page's background transparent.
pub fn show_as_frame() {
    if let Some(root) = document().document_element() {
        root.set_class_name("framed");
    }
}

/// Reports the height of `element` to the host page and follows the theme that the host page sends.
pub fn talk(host: String, element: &Element) {
    // A page opened directly has no host page.
    let is_alone = window().parent().ok().flatten().is_none_or(|parent| Object::is(&parent, &window()));
    if host.is_empty() || is_alone {
        return;
    }
    follow_theme(host.clone());
    let mut reported_height = 0.0;
    let look: Closure<dyn FnMut()> = Closure::new({
        let element = element.clone();
        move || {
            let height = element.get_bounding_client_rect().height().ceil();
            if height > 0.0 && height != reported_height {
                reported_height = height;
                tell(&host, "height", height);
            }
        }
    });
    let look: js_sys::Function = look.into_js_value().unchecked_into();
    drop(look.call0(&JsValue::NULL));
    // The resize observer sees every change of size, but browsers suspend it while the frame is out of sight. The
    // mutation observer sees changes made meanwhile, so that the layout does not shift when the frame becomes visible.
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
        // The browser rejects an invalid origin; then no message is sent.
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
