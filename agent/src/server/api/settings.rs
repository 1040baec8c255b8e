//! What the owner set.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State as Extract},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use headroom_shared::{
    protocol::alert::{ALERTS_MAX, Alert, Settings},
    text::{self, Text},
};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::json;
use crate::server::{
    State,
    archive::{Archive, asked},
    error::Refusal,
    etag,
};

/// Characters of a currency.
const CURRENCY_CHARS_MAX: usize = 8;
/// No currency's kilowatt-hour costs as much.
const PRICE_MAX: f64 = 1e6;
/// Hotter than any card stays whole.
const CELSIUS_MAX: u64 = 150;
/// A week: who waits longer for progress looks by himself.
const MINUTES_MAX: u64 = 7 * 24 * 60;

/// [`Settings`] as they come from outside: all of them are replaced, so that a key which they do not have would be lost in
/// silence.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    alerts: Vec<Strict>,
    #[serde(default)]
    price_per_kwh: Option<f64>,
    #[serde(default)]
    currency: String,
}

/// A rule, with no other keys than its own.
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
pub async fn get(Extract(state): Extract<Arc<State>>) -> Result<Response, Refusal> {
    Ok(answer(&asked(&state.archive, Archive::settings).await?))
}

/// `PUT /api/settings`: all of them, in the place of those that If-Match names.
pub async fn put(Extract(state): Extract<Arc<State>>, request: Request) -> Result<Response, Refusal> {
    let wanted = wanted(request.headers())?;
    let Body { alerts, price_per_kwh, currency } = json(request).await?;
    let alerts = alerts.into_iter().map(|Strict(alert)| alert).collect();
    let settings = Settings { alerts, price_per_kwh, currency };
    check(&settings).map_err(|why| Refusal::bad_request(why.to_string()))?;
    let kept = asked(&state.archive, move |archive| {
        let is_expected = |kept: Option<&Settings>| {
            wanted.iter().any(|tag| tag == "*" || kept.is_some_and(|kept| tag_of(kept) == *tag))
        };
        archive.set_settings(&settings, &is_expected)?;
        Ok(settings)
    });
    Ok(answer(&kept.await?))
}

/// The tags of If-Match (RFC 9110 section 13.1.1). A weak one is none of ours, and equals none.
fn wanted(headers: &HeaderMap) -> Result<Vec<String>, Refusal> {
    let values = headers.get_all(header::IF_MATCH).iter().filter_map(|value| value.to_str().ok());
    let tags: Vec<String> = values.flat_map(|value| value.split(',')).map(|tag| tag.trim().to_owned()).collect();
    if tags.is_empty() { Err(Refusal::precondition_required()) } else { Ok(tags) }
}

/// A strong tag: the same settings have the same one, also after a restart. With its quotes.
fn tag_of(settings: &Settings) -> HeaderValue {
    etag::strong(Sha256::digest(serde_json::to_vec(settings).unwrap_or_default()))
}

fn answer(settings: &Settings) -> Response {
    let mut response = Json(settings).into_response();
    response.headers_mut().insert(header::ETAG, tag_of(settings));
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
        Alert::CardLost | Alert::RunFailed => true,
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
            alerts: vec![Alert::TemperatureAbove { celsius: 85 }, Alert::CardLost],
            price_per_kwh: Some(0.35),
            currency: "€".to_owned(),
        };
        check(&good).expect("they are good");
        let with = |alert| Settings { alerts: vec![alert], ..Settings::default() };
        for bad in [
            with(Alert::TemperatureAbove { celsius: 0 }),
            with(Alert::MemoryAbove { percent: 101 }),
            with(Alert::NoProgress { minutes: u64::MAX }),
            Settings { alerts: vec![Alert::CardLost; ALERTS_MAX + 1], ..Settings::default() },
            Settings { price_per_kwh: Some(-1.0), ..Settings::default() },
            Settings { price_per_kwh: Some(f64::NAN), ..Settings::default() },
            Settings { currency: "123456789".to_owned(), ..Settings::default() },
            Settings { currency: "\u{1b}[2J".to_owned(), ..Settings::default() },
        ] {
            check(&bad).expect_err(&format!("{bad:?}"));
        }
    }
}
