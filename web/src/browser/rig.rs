//! Browser functions for the rig page: clock, stored values, wake-up events, notifications and focus.

use js_sys::{Date, Reflect};
use leptos::{
    prelude::{document, request_animation_frame, window},
    task::spawn_local,
};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    HtmlElement, Notification, NotificationOptions, NotificationPermission, RegistrationOptions,
    ServiceWorkerContainer, ServiceWorkerRegistration,
};

use super::{listen, local_storage, page_address};

const TOKEN_KEY: &str = "headroom.token";
const NEIGHBOURS_KEY: &str = "headroom.rigs";
const NOTIFY_KEY: &str = "headroom.notify";
const SMOOTH_KEY: &str = "headroom.smooth";
/// The page's path, which is the scope of its service worker. The prefix also matches `rig.html`.
const PAGE: &str = "rig";
/// The service worker script, which only shows notifications.
const WORKER: &str = "rig-notify.js";

/// Returns the machine's time in milliseconds since 1970. This clock continues while the machine sleeps.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole milliseconds after 1970")]
pub fn now_ms() -> u64 {
    Date::now().max(0.0) as u64
}

/// Returns a random number from 0 to 1.
pub fn chance() -> f64 {
    js_sys::Math::random()
}

/// Calls back after the machine, the network or the page may have been suspended.
pub fn on_wake(callback: impl FnMut() + 'static) {
    let callback = Closure::<dyn FnMut()>::new(callback).into_js_value();
    for event in ["online", "focus", "pageshow"] {
        listen(event, &callback);
    }
    let done = document().add_event_listener_with_callback("visibilitychange", callback.unchecked_ref());
    debug_assert!(done.is_ok(), "a document accepts listeners");
}

/// Removes the fragment from the address without a history entry, because it contains a one-time pairing code.
pub fn remove_fragment() {
    let Ok(history) = window().history() else { return };
    drop(history.replace_state_with_url(&JsValue::NULL, "", Some(&page_address())));
}

/// Returns the browser's user agent string.
pub fn user_agent() -> String {
    window().navigator().user_agent().unwrap_or_default()
}

fn kept(key: &str) -> Option<String> {
    local_storage()?.get_item(key).ok()?.filter(|kept| !kept.is_empty())
}

fn keep(key: &str, value: Option<&str>) {
    let Some(storage) = local_storage() else { return };
    let _ = match value {
        Some(value) => storage.set_item(key, value),
        None => storage.remove_item(key),
    };
}

/// Returns the stored token for the agent of this origin.
pub fn kept_token() -> Option<String> {
    kept(TOKEN_KEY)
}

/// Stores the token, or removes it if `None`.
pub fn keep_token(token: Option<&str>) {
    keep(TOKEN_KEY, token);
}

/// Returns the stored addresses of other rigs, one per line.
pub fn kept_neighbours() -> String {
    kept(NEIGHBOURS_KEY).unwrap_or_default()
}

/// Stores the addresses of other rigs, one per line.
pub fn keep_neighbours(lines: &str) {
    keep(NEIGHBOURS_KEY, Some(lines));
}

/// Reports whether the option to smooth losses is stored.
pub fn is_kept_smooth() -> bool {
    kept(SMOOTH_KEY).is_some()
}

/// Stores the option to smooth losses.
pub fn keep_smooth(is_smooth: bool) {
    keep(SMOOTH_KEY, is_smooth.then_some("1"));
}

/// Whether this browser shows the page's notifications, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotificationState {
    /// Notifications are on.
    On,
    /// Notifications are off; the user can turn them on.
    Off,
    /// The user denied the permission.
    Denied,
    /// The page is not secure, or the browser does not support notifications.
    Never,
}

/// Returns the current state of notifications.
pub fn notify_state() -> NotificationState {
    let has_any = Reflect::has(&window(), &JsValue::from_str("Notification")).unwrap_or(false);
    if !has_any || !window().is_secure_context() {
        return NotificationState::Never;
    }
    match Notification::permission() {
        NotificationPermission::Denied => NotificationState::Denied,
        NotificationPermission::Granted if kept(NOTIFY_KEY).is_some() => NotificationState::On,
        _ => NotificationState::Off,
    }
}

/// Requests the permission to notify and returns the new state. Browsers allow the request only after a user action.
pub async fn ask_to_notify() -> NotificationState {
    if let Ok(asked) = Notification::request_permission() {
        drop(JsFuture::from(asked).await);
    }
    keep(NOTIFY_KEY, Some("1"));
    let state = notify_state();
    if let (NotificationState::On, Some(workers)) = (state, workers()) {
        let options = RegistrationOptions::new();
        options.set_scope(&beside(PAGE));
        // If the registration fails, notifications work only while the page is open, in browsers that support this.
        drop(JsFuture::from(workers.register_with_options(&beside(WORKER), &options)).await);
    }
    state
}

/// Turns notifications off.
pub fn stop_notifying() {
    keep(NOTIFY_KEY, None);
    spawn_local(async {
        if let Some(worker) = registration().await
            && let Ok(gone) = worker.unregister()
        {
            drop(JsFuture::from(gone).await);
        }
    });
}

/// Returns the service worker container. It is absent on pages that are not secure and in some private windows.
fn workers() -> Option<ServiceWorkerContainer> {
    let navigator = window().navigator();
    let has_any = Reflect::get(&navigator, &JsValue::from_str("serviceWorker")).is_ok_and(|any| any.is_object());
    has_any.then(|| navigator.service_worker())
}

async fn registration() -> Option<ServiceWorkerRegistration> {
    let found = JsFuture::from(workers()?.get_registration_with_document_url(&beside(PAGE))).await.ok()?;
    found.dyn_into().ok()
}

/// Returns the address of a file in the page's directory.
fn beside(name: &str) -> String {
    super::folder() + name
}

/// Shows a notification, which replaces an earlier one with the same tag.
///
/// Mobile browsers accept notifications only from service workers. If a notification cannot be shown, the alert is
/// still on the page and was sent to the webhook.
pub fn notify(title: &str, words: &str, tag: &str) {
    if notify_state() != NotificationState::On {
        return;
    }
    let options = NotificationOptions::new();
    options.set_body(words);
    options.set_tag(tag);
    options.set_icon(&beside("icon-192.png"));
    // The address that a click opens if the page is closed by then.
    options.set_data(&JsValue::from_str(&(beside(PAGE) + &super::query())));
    let title = title.to_owned();
    spawn_local(async move {
        // A service worker that is not yet active refuses.
        let by_worker = registration().await.and_then(|worker| {
            worker.active()?;
            worker.show_notification_with_options(&title, &options).ok()
        });
        match by_worker {
            Some(shown) => drop(JsFuture::from(shown).await),
            None => drop(Notification::new_with_options(&title, &options)),
        }
    });
}

/// Restores the keyboard focus after a redraw, if the focused element's id starts with `beginning`. If that element no
/// longer exists, focuses the first match of `selector`.
pub fn keep_focus(beginning: &str, selector: &'static str) {
    let id = document().active_element().map(|element| element.id()).filter(|id| id.starts_with(beginning));
    if let Some(id) = id {
        request_animation_frame(move || {
            let other = || document().query_selector(selector).ok().flatten();
            let next = document().get_element_by_id(&id).or_else(other);
            if let Some(next) = next.and_then(|next| next.dyn_into::<HtmlElement>().ok()) {
                drop(next.focus());
            }
        });
    }
}

/// Reloads the page.
pub fn reload() {
    drop(window().location().reload());
}
