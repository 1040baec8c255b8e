//! The browser's clock and whether anybody looks.

use leptos::prelude::document;
use wasm_bindgen::JsValue;

/// How many minutes local time is ahead of UTC at a moment, in milliseconds since 1970.
pub fn minutes_ahead_of_utc(time_ms: u64) -> i64 {
    let behind = js_sys::Date::new(&JsValue::from_f64(time_ms as f64)).get_timezone_offset();
    #[expect(clippy::cast_possible_truncation, reason = "minutes of at most a day")]
    let ahead = -behind as i64;
    ahead
}

/// Whether the page is in a tab or a window that nobody sees.
pub fn is_hidden() -> bool {
    document().hidden()
}
