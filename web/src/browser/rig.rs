//! What the rig's page needs of the browser besides: its clock, what is kept of an agent, wake-ups, notifications, and
//! what has the focus.

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

use super::{listen, local_storage};

const TOKEN_KEY: &str = "headroom.token";
const NEIGHBOURS_KEY: &str = "headroom.rigs";
const NOTIFY_KEY: &str = "headroom.notify";
const SMOOTH_KEY: &str = "headroom.smooth";
/// The page, which is all that its worker is for: also as `rig.html`.
const PAGE: &str = "rig";
/// The worker that shows notifications; it has no other business.
const WORKER: &str = "rig-notify.js";

/// Milliseconds since 1970 by this machine's clock, which goes on while it sleeps.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole milliseconds after 1970")]
pub fn now_ms() -> u64 {
    Date::now().max(0.0) as u64
}

/// A number by chance, from 0 to 1.
pub fn chance() -> f64 {
    js_sys::Math::random()
}

/// Calls back whenever the machine, the network or the page may have been away.
pub fn on_wake(callback: impl FnMut() + 'static) {
    let callback = Closure::<dyn FnMut()>::new(callback).into_js_value();
    for event in ["online", "focus", "pageshow"] {
        listen(event, &callback);
    }
    let done = document().add_event_listener_with_callback("visibilitychange", callback.unchecked_ref());
    debug_assert!(done.is_ok(), "a document takes listeners");
}

/// Takes the fragment out of the address, without a step in the history: a one-use code is nobody else's business.
pub fn remove_fragment() {
    let Ok(history) = window().history() else { return };
    let location = window().location();
    let path = location.pathname().unwrap_or_default() + &location.search().unwrap_or_default();
    drop(history.replace_state_with_url(&JsValue::NULL, "", Some(&path)));
}

/// What the browser says of itself.
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

/// The token for the agent of this origin.
pub fn kept_token() -> Option<String> {
    kept(TOKEN_KEY)
}

/// Keeps it, or keeps none.
pub fn keep_token(token: Option<&str>) {
    keep(TOKEN_KEY, token);
}

/// Addresses of other rigs, a line each.
pub fn kept_neighbours() -> String {
    kept(NEIGHBOURS_KEY).unwrap_or_default()
}

/// Keeps them.
pub fn keep_neighbours(lines: &str) {
    keep(NEIGHBOURS_KEY, Some(lines));
}

/// Whether losses are drawn smoothed in this browser.
pub fn is_kept_smooth() -> bool {
    kept(SMOOTH_KEY).is_some()
}

/// Keeps whether they are.
pub fn keep_smooth(is_smooth: bool) {
    keep(SMOOTH_KEY, is_smooth.then_some("1"));
}

/// Whether this browser shows notifications of the page, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// It does.
    On,
    /// A person may switch it on.
    Off,
    /// A person forbade it.
    Denied,
    /// The page is not secure, or the browser has none.
    Never,
}

/// How it stands.
pub fn notify_state() -> Notify {
    let has_any = Reflect::has(&window(), &JsValue::from_str("Notification")).unwrap_or(false);
    if !has_any || !window().is_secure_context() {
        return Notify::Never;
    }
    match Notification::permission() {
        NotificationPermission::Denied => Notify::Denied,
        NotificationPermission::Granted if kept(NOTIFY_KEY).is_some() => Notify::On,
        _ => Notify::Off,
    }
}

/// Asks the person, which a browser allows on a press only; and how it stands then.
pub async fn ask_to_notify() -> Notify {
    if let Ok(asked) = Notification::request_permission() {
        drop(JsFuture::from(asked).await);
    }
    keep(NOTIFY_KEY, Some("1"));
    let state = notify_state();
    if let (Notify::On, Some(workers)) = (state, workers()) {
        let options = RegistrationOptions::new();
        options.set_scope(&beside(PAGE));
        // Without one it is told as long as the page is there, where the browser does that.
        drop(JsFuture::from(workers.register_with_options(&beside(WORKER), &options)).await);
    }
    state
}

/// Shows none any more.
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

/// The browser's service workers; none on a page that is not secure, and in some private windows.
fn workers() -> Option<ServiceWorkerContainer> {
    let navigator = window().navigator();
    let has_any = Reflect::get(&navigator, &JsValue::from_str("serviceWorker")).is_ok_and(|any| any.is_object());
    has_any.then(|| navigator.service_worker())
}

async fn registration() -> Option<ServiceWorkerRegistration> {
    let found = JsFuture::from(workers()?.get_registration_with_document_url(&beside(PAGE))).await.ok()?;
    found.dyn_into().ok()
}

/// The address of something beside the page.
fn beside(name: &str) -> String {
    super::folder() + name
}

/// Shows one in the place of an earlier one of the same tag. Phones take notifications from service workers alone; what
/// is shown nowhere is on the page and went to the webhook.
pub fn notify(title: &str, words: &str, tag: &str) {
    if notify_state() != Notify::On {
        return;
    }
    let options = NotificationOptions::new();
    options.set_body(words);
    options.set_tag(tag);
    options.set_icon(&beside("rig-icon-192.png"));
    // Where a press leads when the page is closed by then.
    options.set_data(&JsValue::from_str(&(beside(PAGE) + &super::query())));
    let title = title.to_owned();
    spawn_local(async move {
        // A worker that is not at work yet refuses.
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

/// Where something with an id that begins so has the keyboard's focus, which is about to be drawn anew, it has the focus
/// again afterwards; or what the selector finds, where it is gone.
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

/// Loads the page anew.
pub fn reload() {
    drop(window().location().reload());
}
