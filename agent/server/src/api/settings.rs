//! The owner's settings.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State as Extract},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use headers::{ETag, HeaderMapExt as _, IfMatch};
use headroom_protocol::alert::{ALERTS_MAX, Alert, Settings};
use headroom_text::{self as text, Text};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::json;
use crate::{
    State,
    archive::{Archive, asked},
    error::ApiError,
    etag,
};

/// The maximum length of a currency in characters.
const CURRENCY_CHARS_MAX: usize = 8;
/// The maximum price of a kilowatt-hour, beyond any currency.
const PRICE_MAX: f64 = 1e6;
/// The maximum temperature in degrees Celsius, above the limit of any GPU.
const CELSIUS_MAX: u64 = 150;
/// The maximum time without progress before an alert: a week.
const MINUTES_MAX: u64 = 7 * 24 * 60;

/// The [`Settings`] of a request. All settings are replaced, so an unknown key is refused instead of dropped silently.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    alerts: Vec<Strict>,
    #[serde(default)]
    price_per_kwh: Option<f64>,
    #[serde(default)]
    currency: String,
}

/// An alert rule without unknown keys.
struct Strict(Alert);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Value::deserialize(deserializer)?;
        let alert = Alert::deserialize(&given).map_err(D::Error::custom)?;
        let own = serde_json::to_value(alert).map_err(D::Error::custom)?;
        match given.as_object().and_then(|given| given.keys().find(|key| own.get(key).is_none())) {
            Some(key) => Err(D::Error::custom(format!("unknown field `{key}` of an alert"))),
            None => Ok(Self(alert)),
        }
    }
}

/// `GET /api/settings`.
pub async fn get(Extract(state): Extract<Arc<State>>) -> Result<Response, ApiError> {
    Ok(answer(&asked(&state.archive, Archive::settings).await?))
}

/// `PUT /api/settings`: replaces all settings if `If-Match` names the current ones.
pub async fn put(Extract(state): Extract<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let condition = condition(request.headers())?;
    let Body { alerts, price_per_kwh, currency } = json(request).await?;
    let alerts = alerts.into_iter().map(|Strict(alert)| alert).collect();
    let settings = Settings { alerts, price_per_kwh, currency };
    check(&settings).map_err(|why| ApiError::bad_request(why.to_string()))?;
    let kept = asked(&state.archive, move |archive| {
        let is_expected = |kept: Option<&Settings>| {
            condition.is_any() || kept.is_some_and(|kept| condition.precondition_passes(&tag_of(kept)))
        };
        archive.set_settings(&settings, &is_expected)?;
        Ok(settings)
    });
    Ok(answer(&kept.await?))
}

/// Returns the required `If-Match`.
fn condition(headers: &HeaderMap) -> Result<IfMatch, ApiError> {
    headers.typed_get().ok_or_else(ApiError::precondition_required)
}

/// Returns a strong tag. Equal settings have equal tags, also after a restart.
fn tag_of(settings: &Settings) -> ETag {
    etag::strong(Sha256::digest(serde_json::to_vec(settings).unwrap_or_default()))
}

fn answer(settings: &Settings) -> Response {
    let mut response = Json(settings).into_response();
    response.headers_mut().typed_insert(tag_of(settings));
    response
}

fn check(settings: &Settings) -> Result<(), Text> {
    if settings.alerts.len() > ALERTS_MAX {
        return Err(text::alerts_at_most(ALERTS_MAX));
    }
    let within = |alert: &Alert| match *alert {
        Alert::TemperatureAbove { celsius } => (1..=CELSIUS_MAX).contains(&celsius),
        Alert::MemoryAbove { percent } => (1..=100).contains(&percent),
        Alert::NoProgress { minutes } => (1..=MINUTES_MAX).contains(&minutes),
        Alert::GpuLost | Alert::RunFailed => true,
    };
    if !settings.alerts.iter().all(within) {
        return Err(text::alert_bounds(CELSIUS_MAX, MINUTES_MAX));
    }
    if settings.price_per_kwh.is_some_and(|price| !(0.0..=PRICE_MAX).contains(&price)) {
        return Err(text::price_bounds(PRICE_MAX.to_string()));
    }
    let currency = &settings.currency;
    if currency.chars().count() > CURRENCY_CHARS_MAX || currency.chars().any(char::is_control) {
        return Err(text::currency_at_most(CURRENCY_CHARS_MAX));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_bounds() {
        let good = Settings {
            alerts: vec![Alert::TemperatureAbove { celsius: 85 }, Alert::GpuLost],
            price_per_kwh: Some(0.35),
            currency: "€".to_owned(),
        };
        check(&good).expect("they are good");
        let with = |alert| Settings { alerts: vec![alert], ..Settings::default() };
        for bad in [
            with(Alert::TemperatureAbove { celsius: 0 }),
            with(Alert::MemoryAbove { percent: 101 }),
            with(Alert::NoProgress { minutes: u64::MAX }),
            Settings { alerts: vec![Alert::GpuLost; ALERTS_MAX + 1], ..Settings::default() },
            Settings { price_per_kwh: Some(-1.0), ..Settings::default() },
            Settings { price_per_kwh: Some(f64::NAN), ..Settings::default() },
            Settings { currency: "123456789".to_owned(), ..Settings::default() },
            Settings { currency: "\u{1b}[2J".to_owned(), ..Settings::default() },
        ] {
            check(&bad).expect_err(&format!("{bad:?}"));
        }
    }
}
