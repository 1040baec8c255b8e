//! The audience of a response: only scope `control` reads the secrets of commands and configs (`secrets.rs`).

use std::convert::Infallible;

use axum::{extract::FromRequestParts, http::request::Parts};
use headroom_protocol::Scope;

use super::secrets::Redact;

/// The readers with one scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audience(pub Scope);

impl Audience {
    /// Redacts the secrets that this audience must not read.
    pub fn shown<T: Redact>(self, mut value: T) -> T {
        if self.0 < Scope::Control {
            value.redact();
        }
        value
    }
}

impl<S: Sync> FromRequestParts<S> for Audience {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // The check before all routes inserts the scope. Without one, the audience has the least scope.
        Ok(Self(parts.extensions.get().copied().unwrap_or(Scope::View)))
    }
}
