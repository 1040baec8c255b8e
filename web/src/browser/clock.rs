//! Time zone and visibility of the page.

use leptos::prelude::document;
use wasm_bindgen::JsValue;

/// Returns the offset of local time from UTC in minutes. `time_ms` is in milliseconds since 1970.
pub fn minutes_ahead_of_utc(time_ms: u64) -> i64 {
    let behind = js_sys::Date::new(&JsValue::from_f64(time_ms as f64)).get_timezone_offset();
    #[expect(clippy::cast_possible_truncation, reason = "minutes of at most a day")]
    let ahead = -behind as i64;
    ahead
}

/// Reports whether the page is in a hidden tab or window.
pub fn is_hidden() -> bool {
    document().hidden()
}
