//! The token of a request.

use axum::http::{HeaderMap, header};

use super::error::ApiError;

/// Query names under which programs are known to send tokens.
const TOKEN_NAMES: [&str; 6] = ["token", "access_token", "auth", "authorization", "api_key", "bearer"];

/// Refuses a query that contains a token.
///
/// # Errors
/// A name of the query is one of `TOKEN_NAMES`.
pub fn check_query(query: Option<&str>) -> Result<(), ApiError> {
    let names = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    for name in names {
        if TOKEN_NAMES.iter().any(|token| name.eq_ignore_ascii_case(token)) {
            return Err(ApiError::token_in_query());
        }
    }
    Ok(())
}

/// Returns the token of `Authorization: Bearer TOKEN`. The typed header of `headers` would accept a repeated one.
///
/// # Errors
/// The header is missing, repeated or malformed.
pub fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(ApiError::no_token()) };
    let (scheme, token) = value.to_str().ok().and_then(|value| value.split_once(' ')).ok_or_else(ApiError::no_token)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(ApiError::no_token()) }
}
