//! The pages' only interface to the browser: address, clipboard, storage, files, focus and time.
//!
//! Every call can fail in some browser, for example if storage is blocked or the page is not secure. Such a failure
//! costs only a convenience, so it is returned as `None` or `false` and never shown as an error.

pub mod clock;
pub mod dropped;
pub mod files;
pub mod frame;
pub mod pinned;
pub mod query;
pub mod rig;
pub mod tokens;
pub mod worker;

use headroom_text::LANGUAGES;
use js_sys::Array;
use leptos::prelude::{document, request_animation_frame, window};
use wasm_bindgen::{JsCast, JsValue, closure::Closure, prelude::wasm_bindgen};
use wasm_bindgen_futures::JsFuture;
use web_sys::{CustomEvent, DragEvent, Element, HtmlDocument, HtmlElement, HtmlTextAreaElement, Storage};

/// Returns the fragment of the address, with its `#`.
pub fn fragment() -> String {
    window().location().hash().unwrap_or_default()
}

/// Replaces the fragment and the state of the current history entry. A reload or Back restores the state.
pub fn replace_entry(fragment: &str, state: &str) {
    let Ok(history) = window().history() else { return };
    let address = with_fragment(fragment);
    // Browsers limit the number of calls; after a refusal the next edit updates the address. They limit the size of the
    // state to 16 MiB or more.
    if history.replace_state_with_url(&JsValue::from_str(state), "", Some(&address)).is_err() {
        drop(history.replace_state_with_url(&JsValue::NULL, "", Some(&address)));
    }
}

/// Returns the state of the current history entry. `None` if it has none, for example after a link is opened.
pub fn entry_state() -> Option<String> {
    window().history().ok()?.state().ok()?.as_string()
}

/// Returns this page's address without its fragment. A path alone would not do: `//name/` is the address of a host.
pub fn page_address() -> String {
    let mut address = window().location().href().unwrap_or_default();
    address.truncate(address.find('#').unwrap_or(address.len()));
    address
}

/// Returns this page's address with a fragment, or without one if it is empty.
fn with_fragment(fragment: &str) -> String {
    let address = page_address();
    if fragment.is_empty() { address } else { format!("{address}#{fragment}") }
}

/// Adds a history entry with a fragment, and returns whether it did. Its state is set by [`replace_entry`].
pub fn push_entry(fragment: &str) -> bool {
    // A repeated address would add a step back that changes nothing.
    if self::fragment().strip_prefix('#') == Some(fragment) {
        return false;
    }
    let Ok(history) = window().history() else { return false };
    history.push_state_with_url(&JsValue::NULL, "", Some(&with_fragment(fragment))).is_ok()
}

/// Goes one step forward or back in the history.
pub fn step(is_forward: bool) {
    if let Ok(history) = window().history() {
        drop(if is_forward { history.forward() } else { history.back() });
    }
}

/// Adds the run to the links to other pages in the header, and the message's figures to that of Diagnose. An empty run
/// keeps the links of the other pages.
pub fn carry_run(run: &str, figures: &str) {
    let Ok(Some(pages)) = document().query_selector(".header__pages") else { return };
    let links = pages.children();
    for link in (0..links.length()).filter_map(|index| links.item(index)).filter(|link| link.has_attribute("data-run"))
    {
        let href = link.get_attribute("href").unwrap_or_default();
        let page = href.split('#').next().unwrap_or_default();
        if !run.is_empty() || is_diagnose(page) {
            drop(link.set_attribute("href", &link_to(page, run, figures)));
        }
    }
}

/// Sets the address of the link at position `index` of the header's pages.
pub fn link_page(index: u32, href: &str) {
    let Ok(Some(pages)) = document().query_selector(".header__pages") else { return };
    if let Some(link) = pages.children().item(index) {
        drop(link.set_attribute("href", href));
    }
}

fn is_diagnose(page: &str) -> bool {
    page.contains("diagnose")
}

/// Returns the address of a page with a run. That of Diagnose has the message's figures too, and that of Compare the run
/// that was pinned there.
pub fn link_to(page: &str, run: &str, figures: &str) -> String {
    let figures = if is_diagnose(page) { figures } else { "" };
    match (run, figures) {
        ("", "") => page.to_owned(),
        ("", _) => [page, "#1", figures].concat(),
        _ if page.contains("compare") => [page, "#", run, &pinned::kept().0].concat(),
        _ => [page, "#", run, figures].concat(),
    }
}

/// Returns the relative address of a page with a fragment, in the language of this page.
pub fn page_with(page: &str, fragment: &str) -> String {
    let hash = if fragment.is_empty() { "" } else { "#" };
    ["./", page, &query(), hash, fragment].concat()
}

/// Returns the full address with a fragment.
pub fn address_with(fragment: &str) -> String {
    let location = window().location();
    let (origin, path) = (location.origin().unwrap_or_default(), location.pathname().unwrap_or_default());
    format!("{origin}{path}{}#{fragment}", query())
}

/// Returns the address of the page's directory, with a slash at its end.
pub fn folder() -> String {
    let location = window().location();
    let path = location.pathname().unwrap_or_default();
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{}{folder}/", location.origin().unwrap_or_default())
}

/// Reports whether the page is served from this machine, so that other devices cannot reach it.
pub fn is_local() -> bool {
    let name = window().location().hostname().unwrap_or_default();
    name == "localhost" || name == "[::1]" || name.starts_with("127.")
}

/// Adds a script from the page's directory.
pub fn add_script(name: &str) {
    let script = document().create_element("script").ok();
    let done = script.zip(document().head()).map(|(script, head)| {
        script.set_attribute("src", &(folder() + name)).and_then(|()| head.append_child(&script))
    });
    debug_assert!(done.is_some_and(|done| done.is_ok()), "a page accepts scripts");
}

/// Creates an element with attributes inside another, or updates the attributes of an existing one.
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

/// Calls back whenever the user goes back or forward in the history, or opens a link with another fragment.
///
/// The event `popstate` arrives with the new address. `hashchange` arrives in a later task, and a timer that runs in
/// between would write to the wrong step.
pub fn on_history_step(callback: impl FnMut() + 'static) {
    listen("popstate", &Closure::<dyn FnMut()>::new(callback).into_js_value());
}

/// Calls back with the start and the end of the part of the run that `shortcuts.js` shows, as shares of the run.
pub fn on_chart_range(callback: impl Fn(f64, f64) + 'static) {
    let hear = move |event: CustomEvent| {
        let range: Array = event.detail().unchecked_into();
        if let (Some(start), Some(end)) = (range.get(0).as_f64(), range.get(1).as_f64()) {
            callback(start, end);
        }
    };
    listen("chart-range", &Closure::<dyn FnMut(CustomEvent)>::new(hear).into_js_value());
}

/// Calls back for a drag event anywhere on the page.
pub fn on_drag(event: &str, callback: impl FnMut(DragEvent) + 'static) {
    listen(event, &Closure::<dyn FnMut(DragEvent)>::new(callback).into_js_value());
}

/// Reports whether files are dragged, and not text.
pub fn has_files(event: &DragEvent) -> bool {
    event.data_transfer().is_some_and(|data| data.types().includes(&JsValue::from_str("Files"), 0))
}

/// Adds an event listener for the lifetime of the page.
fn listen(event: &str, callback: &JsValue) {
    let done = window().add_event_listener_with_callback(event, callback.unchecked_ref());
    debug_assert!(done.is_ok(), "a window accepts listeners");
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
const FIGURES_KEY: &str = "headroom.figures";
const CONFIG_KEY: &str = "headroom.config";
/// Key of the demo's settings, for [`keep`].
pub const DEMO: &str = "headroom.demo";
/// Key of the start page's text, for [`keep`].
pub const START: &str = "headroom.start";
/// Maximum size in bytes of a stored text. Browsers store about five million characters of a window, and two texts are
/// stored.
pub const KEPT_BYTES_MAX: usize = 5 << 19;
const TEXT_OF_KEY: &str = "headroom.text_of";
const GPU_KEY: &str = "headroom.gpu";

/// Stores the GPU that the user selected, for later visits on this device.
pub fn keep_gpu(name: &str) {
    let _ = local_storage().map(|storage| storage.set_item(GPU_KEY, name));
}

/// Returns the GPU selected on this device, if there is one.
pub fn kept_gpu() -> Option<String> {
    local_storage()?.get_item(GPU_KEY).ok()?
}

/// Returns the fragment of the run last shown in this window, or an empty string.
pub fn kept_run() -> String {
    session_storage().and_then(|storage| storage.get_item(TEXT_OF_KEY).ok()?).unwrap_or_default()
}

/// Stores the figures of the message on the Diagnose page, in a link's format.
pub fn keep_figures(figures: &str) {
    let _ = session_storage().map(|storage| storage.set_item(FIGURES_KEY, figures));
}

/// Removes the message last shown in this window, which belongs to another run, and its config.
pub fn forget_message() {
    if let Some(storage) = session_storage() {
        for key in [FIGURES_KEY, MESSAGE_KEY, CONFIG_KEY] {
            let _ = storage.remove_item(key);
        }
    }
}

/// Returns the figures of the message last shown in this window, or an empty string.
pub fn kept_figures() -> String {
    session_storage().and_then(|storage| storage.get_item(FIGURES_KEY).ok()?).unwrap_or_default()
}

/// Returns the stored theme, "light" or "dark", if there is one.
pub fn kept_theme() -> Option<String> {
    local_storage()?.get_item(THEME_KEY).ok()?
}

/// Applies and stores a theme; `None` follows the system.
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

/// Stores a text for another page that opens the fragment made from it.
pub fn keep_text(fragment: &str, text: &str) {
    if let Some(storage) = session_storage() {
        // A text that is too large removes the stored one, which belongs to another fragment.
        let _ = storage.remove_item(TEXT_KEY);
        let _ = storage.set_item(TEXT_OF_KEY, fragment);
        if text.len() <= KEPT_BYTES_MAX {
            let _ = storage.set_item(TEXT_KEY, text);
        }
    }
}

/// Stores the pasted texts for the same page in another language.
pub fn keep_message(message: &str, config: &str) {
    if let Some(storage) = session_storage() {
        let _ = storage.set_item(MESSAGE_KEY, message);
        let _ = storage.set_item(CONFIG_KEY, config);
    }
}

/// Returns the stored message and config, and removes them.
pub fn kept_message() -> Option<(String, String)> {
    let storage = session_storage()?;
    let kept = (storage.get_item(MESSAGE_KEY).ok()??, storage.get_item(CONFIG_KEY).ok()??);
    let _ = storage.remove_item(MESSAGE_KEY);
    let _ = storage.remove_item(CONFIG_KEY);
    Some(kept)
}

/// Stores a text for the same page in another language.
pub fn keep(key: &str, text: &str) {
    if let Some(storage) = session_storage() {
        let _ = storage.set_item(key, text);
    }
}

/// Returns a text that [`keep`] stored, and removes it.
pub fn take_kept(key: &str) -> Option<String> {
    let storage = session_storage()?;
    let kept = storage.get_item(key).ok()??;
    let _ = storage.remove_item(key);
    Some(kept)
}

/// Returns the stored fragment and text.
pub fn kept_text() -> Option<(String, String)> {
    let storage = session_storage()?;
    Some((storage.get_item(TEXT_OF_KEY).ok()??, storage.get_item(TEXT_KEY).ok()??))
}

/// Returns the texts of the page's language, which boot.js fetches with the program.
pub fn fetched_text() -> String {
    let text = js_sys::Reflect::get(&window(), &JsValue::from_str("headroomText"));
    text.ok().and_then(|text| text.as_string()).unwrap_or_default()
}

/// Returns the code of the current language.
pub fn language() -> String {
    let root = document().document_element();
    root.and_then(|root| root.get_attribute("lang")).unwrap_or_default()
}

/// Opens a page as a step of the browser's history.
pub fn go_to(address: &str) {
    let _ = window().location().assign(address);
}

/// Reloads the page in another language and stores the choice.
pub fn open_in_language(code: &str) {
    let _ = local_storage().map(|storage| storage.set_item(LANGUAGE_KEY, code));
    let address = page_address();
    let page = address.split('?').next().unwrap_or_default();
    let _ = window().location().replace(&format!("{page}?lang={code}{}", fragment()));
}

/// Returns the language in the address as a query with its `?`, for links to other pages. Other parts of the query are
/// dropped.
pub fn query() -> String {
    let search = window().location().search().unwrap_or_default();
    let asked = search.split(['?', '&']).find_map(|part| part.strip_prefix("lang="));
    let language = LANGUAGES.iter().find(|language| Some(language.code) == asked);
    language.map(|language| format!("?lang={}", language.code)).unwrap_or_default()
}

/// Copies a text to the clipboard. Returns `false` if the browser refuses.
pub async fn copy(text: String) -> bool {
    let navigator = window().navigator();
    // Only secure pages have a clipboard. The deprecated command also works over plain HTTP in a home network.
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

#[wasm_bindgen]
extern "C" {
    /// Offers a plan as an image, its chart as a file, and the page as a report. The message is the labels of
    /// web/export.js, one in each line, and then the plan's forum text.
    #[wasm_bindgen(js_name = headroomExport)]
    pub fn show_export(message: &str);

    /// Lists the live tensors. The message is that of web/tensors.js.
    #[wasm_bindgen(js_name = headroomTensors)]
    pub fn show_tensors(message: &str);
}

/// Returns a `data:` URL from which a text can be downloaded.
pub fn text_address(text: &str) -> String {
    format!("data:text/plain;charset=utf-8,{}", String::from(js_sys::encode_uri_component(text)))
}

/// Reads the text of a file. Returns `None` if the file is unreadable.
pub async fn file_text(file: web_sys::File) -> Option<String> {
    JsFuture::from(file.text()).await.ok()?.as_string()
}

/// Reports whether an element has the focus.
pub fn has_focus(element: &Element) -> bool {
    document().active_element().is_some_and(|active| active == *element)
}

/// Returns the id of the element with the focus, or an empty string.
pub fn focused_id() -> String {
    document().active_element().map(|active| active.id()).unwrap_or_default()
}

/// Moves the focus to an element.
pub fn focus(id: &str) {
    let element = document().get_element_by_id(id);
    if let Some(element) = element.and_then(|element| element.dyn_into::<HtmlElement>().ok()) {
        let _ = element.focus();
    }
}

/// Scrolls to an element and moves the focus to it.
pub fn scroll_to(id: &str) {
    if let Some(element) = document().get_element_by_id(id) {
        element.scroll_into_view();
    }
    focus(id);
}

/// Scrolls to the page's answer, and moves the focus to it, or to its verdict if it has one. Controls that disappear when
/// they are pressed call it.
pub fn show_answer() {
    scroll_to("answer");
    focus("verdict");
}

/// Captures the pointer, so that the rest of a drag goes to the element where it began.
pub fn capture_pointer(event: &web_sys::PointerEvent) {
    let element = event.current_target().and_then(|target| target.dyn_into::<Element>().ok());
    drop(element.map(|element| element.set_pointer_capture(event.pointer_id())));
}

/// Selects a part of a text area and scrolls to it. `depth` is the position of the part as a fraction of the text.
pub fn select(area: &HtmlTextAreaElement, start: u32, end: u32, depth: f64) {
    let _ = area.focus();
    let _ = area.set_selection_range(start, end);
    let line = f64::from(area.scroll_height()) * depth - f64::from(area.client_height()) / 3.0;
    #[expect(clippy::cast_possible_truncation, reason = "a scroll position in pixels")]
    area.set_scroll_top(line as i32);
}

/// Returns the page's monotonic clock in milliseconds.
pub fn now_millis() -> f64 {
    window().performance().map_or(0.0, |performance| performance.now())
}

/// Removes the loading screen of index.html.
pub fn remove_loading_screen() {
    if let Some(element) = document().get_element_by_id("loading") {
        element.remove();
    }
}

/// Scrolls to an element in the next frame if its top is above the visible area.
pub fn bring_in_sight(id: &str) {
    let Some(element) = document().get_element_by_id(id) else { return };
    request_animation_frame(move || {
        let at = element.get_bounding_client_rect();
        if at.top() < 0.0 {
            element.scroll_into_view();
        }
    });
}

/// Returns the position of a pointer event in its element, as fractions of the width and height.
pub fn place_within(event: &web_sys::PointerEvent) -> Option<(f64, f64)> {
    let element: Element = event.current_target()?.dyn_into().ok()?;
    let around = element.get_bounding_client_rect();
    let share = |at: f64, start: f64, length: f64| (at - start) / length.max(1.0);
    let (x, y) = (f64::from(event.client_x()), f64::from(event.client_y()));
    Some((share(x, around.left(), around.width()), share(y, around.top(), around.height())))
}
