//! The one place that knows the browser: address, clipboard, storage, files, focus, time.
//!
//! Every call can fail in some browser (storage that is blocked, a page that is not secure); none of that is more than
//! a missing convenience, so failures come back as `None` or `false` and never as an error page.

pub mod clock;
pub mod dropped;
pub mod frame;
pub mod rig;
pub mod worker;

use headroom_shared::text::LANGUAGES;
use leptos::prelude::{document, request_animation_frame, window};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use wasm_bindgen_futures::JsFuture;
use web_sys::{DragEvent, Element, HtmlDocument, HtmlElement, HtmlTextAreaElement, Storage};

/// The fragment of the address, with its `#`.
pub fn fragment() -> String {
    window().location().hash().unwrap_or_default()
}

/// Writes the fragment without a step in the history.
pub fn replace_fragment(fragment: &str) {
    let Ok(history) = window().history() else { return };
    // A relative address: with a <base> element a bare fragment would resolve against that.
    let location = window().location();
    let path = location.pathname().unwrap_or_default() + &location.search().unwrap_or_default();
    // A browser that counts calls refuses some; the next edit writes the address again.
    drop(history.replace_state_with_url(&JsValue::NULL, "", Some(&format!("{path}#{fragment}"))));
}

/// Gives the head's links to other pages the run, as a fragment.
pub fn carry_run(fragment: &str) {
    let Ok(Some(pages)) = document().query_selector(".header__pages") else { return };
    let links = pages.children();
    for link in (0..links.length()).filter_map(|index| links.item(index)).filter(|link| link.has_attribute("data-run"))
    {
        let href = link.get_attribute("href").unwrap_or_default();
        let page = href.split('#').next().unwrap_or_default();
        drop(link.set_attribute("href", &format!("{page}#{fragment}")));
    }
}

/// The whole address with that fragment.
pub fn address_with(fragment: &str) -> String {
    let location = window().location();
    let (origin, path) = (location.origin().unwrap_or_default(), location.pathname().unwrap_or_default());
    format!("{origin}{path}{}#{fragment}", query())
}

/// The folder that the page lies in, as an address with a slash at its end.
pub fn folder() -> String {
    let location = window().location();
    let path = location.pathname().unwrap_or_default();
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{}{folder}/", location.origin().unwrap_or_default())
}

/// Whether the page comes from this machine, so that nobody elsewhere can ask for it.
pub fn is_local() -> bool {
    let name = window().location().hostname().unwrap_or_default();
    name == "localhost" || name == "[::1]" || name.starts_with("127.")
}

/// Adds a script of ours to the page.
pub fn add_script(name: &str) {
    let script = document().create_element("script").ok();
    let done = script.zip(document().head()).map(|(script, head)| {
        script.set_attribute("src", &(folder() + name)).and_then(|()| head.append_child(&script))
    });
    debug_assert!(done.is_some_and(|done| done.is_ok()), "a page takes scripts");
}

/// Shows the element of that name in another with those attributes; one that is there already gets them anew.
pub fn show_element(within: &Element, name: &str, attributes: &[(&str, Option<String>)]) {
    let there = within.first_element_child();
    let Some(element) = there.clone().or_else(|| document().create_element(name).ok()) else { return };
    for (name, value) in attributes {
        match value {
            Some(value) if element.get_attribute(name).as_ref() == Some(value) => {}
            Some(value) => drop(element.set_attribute(name, value)),
            None => drop(element.remove_attribute(name)),
        }
    }
    if there.is_none() {
        drop(within.append_child(&element));
    }
}

/// Calls back whenever another link is opened in this window.
pub fn on_fragment_change(callback: impl FnMut() + 'static) {
    listen("hashchange", &Closure::<dyn FnMut()>::new(callback).into_js_value());
}

/// Calls back for something dragged, wherever on the page it is.
pub fn on_drag(event: &str, callback: impl FnMut(DragEvent) + 'static) {
    listen(event, &Closure::<dyn FnMut(DragEvent)>::new(callback).into_js_value());
}

/// Whether files are dragged, and not a piece of text.
pub fn has_files(event: &DragEvent) -> bool {
    event.data_transfer().is_some_and(|data| data.types().includes(&JsValue::from_str("Files"), 0))
}

/// For as long as the page lives.
fn listen(event: &str, callback: &JsValue) {
    let done = window().add_event_listener_with_callback(event, callback.unchecked_ref());
    debug_assert!(done.is_ok(), "a window takes listeners");
}

fn local_storage() -> Option<Storage> {
    window().local_storage().ok().flatten()
}

fn session_storage() -> Option<Storage> {
    window().session_storage().ok().flatten()
}

const THEME_KEY: &str = "headroom.theme";
const LANGUAGE_KEY: &str = "headroom.language";
const TEXT_KEY: &str = "headroom.text";
const MESSAGE_KEY: &str = "headroom.message";
const CONFIG_KEY: &str = "headroom.config";
const DEMO_KEY: &str = "headroom.demo";
/// The longest text that is kept: a store of a few megabytes is all there is, and writing into it takes its time.
const KEPT_BYTES_MAX: usize = 1 << 20;
const TEXT_OF_KEY: &str = "headroom.text_of";
const GPU_KEY: &str = "headroom.gpu";

/// Keeps the GPU that a person chose, for later visits on this device.
pub fn keep_gpu(name: &str) {
    let _ = local_storage().map(|storage| storage.set_item(GPU_KEY, name));
}

/// The GPU that was chosen on this device, if one was.
pub fn kept_gpu() -> Option<String> {
    local_storage()?.get_item(GPU_KEY).ok()?
}

/// The fragment of the run that was last shown in this window, empty where there was none.
pub fn kept_run() -> String {
    session_storage().and_then(|storage| storage.get_item(TEXT_OF_KEY).ok()?).unwrap_or_default()
}

/// The theme that was chosen, if one was: "light" or "dark".
pub fn kept_theme() -> Option<String> {
    local_storage()?.get_item(THEME_KEY).ok()?
}

/// Shows and keeps a theme; `None` follows the system.
pub fn set_theme(theme: Option<&str>) {
    let root = document().document_element();
    let storage = local_storage();
    let done = match theme {
        Some(theme) => {
            let _ = storage.map(|storage| storage.set_item(THEME_KEY, theme));
            root.map(|root| root.set_attribute("data-theme", theme))
        }
        None => {
            let _ = storage.map(|storage| storage.remove_item(THEME_KEY));
            root.map(|root| root.remove_attribute("data-theme"))
        }
    };
    debug_assert!(done.is_none_or(|result| result.is_ok()), "data-theme is a valid attribute");
}

/// Keeps a text for a reload of the fragment it was made of.
pub fn keep_text(fragment: &str, text: &str) {
    if let Some(storage) = session_storage() {
        // A text that does not fit into the storage leaves none behind, rather than another's.
        let _ = storage.remove_item(TEXT_KEY);
        let _ = storage.set_item(TEXT_OF_KEY, fragment);
        if text.len() <= KEPT_BYTES_MAX {
            let _ = storage.set_item(TEXT_KEY, text);
        }
    }
}

/// Keeps what was pasted for the same page in another language.
pub fn keep_message(message: &str, config: &str) {
    if let Some(storage) = session_storage() {
        let _ = storage.set_item(MESSAGE_KEY, message);
        let _ = storage.set_item(CONFIG_KEY, config);
    }
}

/// The message and the config that were kept, which are given once.
pub fn kept_message() -> Option<(String, String)> {
    let storage = session_storage()?;
    let kept = (storage.get_item(MESSAGE_KEY).ok()??, storage.get_item(CONFIG_KEY).ok()??);
    let _ = storage.remove_item(MESSAGE_KEY);
    let _ = storage.remove_item(CONFIG_KEY);
    Some(kept)
}

/// Keeps what was set in the demo for the same page in another language.
pub fn keep_demo(kept: &str) {
    if let Some(storage) = session_storage() {
        let _ = storage.set_item(DEMO_KEY, kept);
    }
}

/// What was kept of the demo, which is given once.
pub fn kept_demo() -> Option<String> {
    let storage = session_storage()?;
    let kept = storage.get_item(DEMO_KEY).ok()??;
    let _ = storage.remove_item(DEMO_KEY);
    Some(kept)
}

/// The fragment and the text that were kept.
pub fn kept_text() -> Option<(String, String)> {
    let storage = session_storage()?;
    Some((storage.get_item(TEXT_OF_KEY).ok()??, storage.get_item(TEXT_KEY).ok()??))
}

/// The text of the page's language, fetched along with its program (boot.js).
pub fn fetched_text() -> String {
    let text = js_sys::Reflect::get(&window(), &JsValue::from_str("headroomText"));
    text.ok().and_then(|text| text.as_string()).unwrap_or_default()
}

/// The code of the language that is shown.
pub fn language() -> String {
    let root = document().document_element();
    root.and_then(|root| root.get_attribute("lang")).unwrap_or_default()
}

/// Opens this address in another language, which is kept for the next visit too.
pub fn open_in_language(code: &str) {
    let _ = local_storage().map(|storage| storage.set_item(LANGUAGE_KEY, code));
    let location = window().location();
    let path = location.pathname().unwrap_or_default();
    let _ = location.replace(&format!("{path}?lang={code}{}", fragment()));
}

/// The language that the address asks for, as a query with its `?`: what links carry along. Whatever else stands in the
/// query is nobody's business.
pub fn query() -> String {
    let search = window().location().search().unwrap_or_default();
    let asked = search.split(['?', '&']).find_map(|part| part.strip_prefix("lang="));
    let language = LANGUAGES.iter().find(|language| Some(language.code) == asked);
    language.map(|language| format!("?lang={}", language.code)).unwrap_or_default()
}

/// Copies a text; false where the browser does not let it.
pub async fn copy(text: String) -> bool {
    let navigator = window().navigator();
    // Only secure pages have a clipboard; the old command works on plain http in a home network too.
    let has_clipboard = js_sys::Reflect::has(&navigator, &JsValue::from_str("clipboard")).unwrap_or(false);
    let copied = has_clipboard && JsFuture::from(navigator.clipboard().write_text(&text)).await.is_ok();
    copied || copy_by_command(&text).unwrap_or(false)
}

fn copy_by_command(text: &str) -> Option<bool> {
    let document: HtmlDocument = document().dyn_into().ok()?;
    let area: HtmlTextAreaElement = document.create_element("textarea").ok()?.dyn_into().ok()?;
    area.set_value(text);
    area.set_class_name("visually-hidden");
    let focused = document.active_element().and_then(|element| element.dyn_into::<HtmlElement>().ok());
    document.body()?.append_child(&area).ok()?;
    area.select();
    let copied = document.exec_command("copy").ok();
    area.remove();
    let _ = focused.map(|element| element.focus());
    copied
}

/// An address that is a text itself, to download it from.
pub fn text_address(text: &str) -> String {
    format!("data:text/plain;charset=utf-8,{}", String::from(js_sys::encode_uri_component(text)))
}

/// The text of a file; `None` where it is larger than `bytes_max` or not to be read.
pub async fn file_text(file: web_sys::File, bytes_max: f64) -> Option<String> {
    if file.size() > bytes_max {
        return None;
    }
    JsFuture::from(file.text()).await.ok()?.as_string()
}

/// Whether a person is in that element.
pub fn has_focus(element: &Element) -> bool {
    document().active_element().is_some_and(|active| active == *element)
}

/// Moves the focus to an element.
pub fn focus(id: &str) {
    let element = document().get_element_by_id(id);
    if let Some(element) = element.and_then(|element| element.dyn_into::<HtmlElement>().ok()) {
        let _ = element.focus();
    }
}

/// Scrolls a box so that the first element of a selector in it is in its middle, once that is drawn. Nothing else moves.
pub fn scroll_within(outer: Element, selector: String) {
    request_animation_frame(move || {
        if let Ok(Some(inner)) = outer.query_selector(&selector) {
            let (around, at) = (outer.get_bounding_client_rect(), inner.get_bounding_client_rect());
            let down = at.top() - around.top() - (around.height() - at.height()) / 2.0;
            #[expect(clippy::cast_possible_truncation, reason = "a scroll position in pixels")]
            outer.set_scroll_top(outer.scroll_top() + down as i32);
        }
    });
}

/// Brings a part of a text area into view, selected.
pub fn select(area: &HtmlTextAreaElement, start: u32, end: u32, depth: f64) {
    let _ = area.focus();
    let _ = area.set_selection_range(start, end);
    let line = f64::from(area.scroll_height()) * depth - f64::from(area.client_height()) / 3.0;
    #[expect(clippy::cast_possible_truncation, reason = "a scroll position in pixels")]
    area.set_scroll_top(line as i32);
}

/// Milliseconds of the page's own clock.
pub fn now_millis() -> f64 {
    window().performance().map_or(0.0, |performance| performance.now())
}

/// Takes away what index.html shows until the program runs.
pub fn remove_loading_screen() {
    if let Some(element) = document().get_element_by_id("loading") {
        element.remove();
    }
}

/// Puts a piece of a text behind the others, with its number.
pub fn append_span(into: &Element, words: &str, class: &str, index: usize) {
    let Ok(span) = document().create_element("span") else { return };
    span.set_text_content(Some(words));
    span.set_class_name(class);
    drop(span.set_attribute(INDEX, &index.to_string()));
    drop(into.append_child(&span));
}

/// Scrolls as little as it takes for an element to be seen.
pub fn bring_in_sight(id: &str) {
    let Some(element) = document().get_element_by_id(id) else { return };
    request_animation_frame(move || {
        let at = element.get_bounding_client_rect();
        if at.top() < 0.0 {
            element.scroll_into_view();
        }
    });
}

/// Whether the end of a box that scrolls is in sight, about a line more or less.
pub fn is_at_end(element: &Element) -> bool {
    element.scroll_top() + element.client_height() + 40 >= element.scroll_height()
}

/// Marks one of the children as the current one, and no other.
pub fn mark_child(of: &Element, index: Option<usize>) {
    if let Ok(Some(marked)) = of.query_selector("[aria-current]") {
        drop(marked.remove_attribute("aria-current"));
    }
    let child = index.and_then(|index| of.children().item(u32::try_from(index).ok()?));
    let Some(child) = child else { return };
    drop(child.set_attribute("aria-current", "true"));
    // Whoever walks by keys sees where; nobody else is moved.
    if has_focus(of) {
        let (around, at) = (of.get_bounding_client_rect(), child.get_bounding_client_rect());
        let beyond = (at.bottom() - around.bottom()).max(0.0) + (at.top() - around.top()).min(0.0);
        #[expect(clippy::cast_possible_truncation, reason = "a scroll position in pixels")]
        of.set_scroll_top(of.scroll_top() + beyond as i32);
    }
}

const INDEX: &str = "data-index";

/// The number of the piece that an event happened at.
pub fn index_at(target: Option<web_sys::EventTarget>) -> Option<usize> {
    target?.dyn_into::<Element>().ok()?.get_attribute(INDEX)?.parse().ok()
}

/// Where in an element something is pointed at: shares of its width and height.
pub fn place_within(event: &web_sys::PointerEvent) -> Option<(f64, f64)> {
    let element: Element = event.current_target()?.dyn_into().ok()?;
    let around = element.get_bounding_client_rect();
    let share = |at: f64, start: f64, length: f64| (at - start) / length.max(1.0);
    let (x, y) = (f64::from(event.client_x()), f64::from(event.client_y()));
    Some((share(x, around.left(), around.width()), share(y, around.top(), around.height())))
}
