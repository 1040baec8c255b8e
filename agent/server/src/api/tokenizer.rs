//! GPT-2's tokenizer, for pages that generate text from a checkpoint with its vocabulary. Such a checkpoint contains
//! only the tokenizer's name.
//!
//! The file is the same for all clients of one version of the program. Browsers cache it and revalidate it each time.

use std::sync::OnceLock;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use headers::{ETag, HeaderMapExt as _};
use sha2::{Digest as _, Sha256};

use crate::{blocking::blocking, error::ApiError, etag};
use headroom_train::data::tokenizer::tokenizer_json;

/// A private cache that always revalidates, because each request requires a valid token.
const CACHE: HeaderValue = HeaderValue::from_static("private, no-cache");

/// `GET` and `HEAD /api/tokenizers/gpt2`.
pub async fn answer(request: HeaderMap) -> Result<Response, ApiError> {
    // The first request creates the file, and simultaneous requests wait for it.
    let made = blocking(|| tokenizer_json().map(|json| (json, tag(json)))).await?;
    let (json, etag) = made.ok_or_else(|| ApiError::internal("the tokenizer has no JSON form"))?;
    let mut response = if etag::is_cached(&request, etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let content_type = [(header::CONTENT_TYPE, "application/json")];
        (content_type, Body::from(Bytes::from_static(json.as_bytes()))).into_response()
    };
    response.headers_mut().insert(header::CACHE_CONTROL, CACHE);
    response.headers_mut().typed_insert(etag.clone());
    Ok(response)
}

/// Returns the file's entity tag.
fn tag(json: &str) -> &'static ETag {
    static TAG: OnceLock<ETag> = OnceLock::new();
    TAG.get_or_init(|| etag::strong(Sha256::digest(json)))
}

#[cfg(test)]
mod tests {
    use headroom_tokenizer::bpe::ByteBpe;

    use crate::tests::talk::Server;

    #[tokio::test]
    async fn a_browser_reads_it_and_keeps_it() {
        const PATH: &str = "/api/tokenizers/gpt2";
        let server = Server::start().await;
        let whole = server.asked("GET", PATH, &server.place.view).await;
        assert_eq!((whole.status, whole.header("cache-control")), (200, "private, no-cache"));
        let tokenizer = ByteBpe::from_tokenizer_json(whole.body.as_bytes()).expect("what a page reads");
        assert_eq!(tokenizer.vocab_size(), 50_257);
        assert!(whole.body.len() < 2_000_000, "{} bytes", whole.body.len());
        let etag = whole.header("etag").to_owned();
        assert!(etag.starts_with('"') && etag.len() == 34, "a strong tag: {etag}");
        let bearer = format!("Authorization: Bearer {}", server.place.view);
        let again = server.request("GET", PATH, &[&bearer, &format!("If-None-Match: {etag}")]).await;
        assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", etag.as_str()));
        assert_eq!(again.header("cache-control"), "private, no-cache");
        let head = server.request("HEAD", PATH, &[&bearer]).await;
        assert_eq!((head.status, head.header("content-length")), (200, whole.body.len().to_string().as_str()));
        // A cached file still requires a token.
        let lines = [format!("If-None-Match: {etag}")];
        assert_eq!(server.request("GET", PATH, &lines.each_ref().map(String::as_str)).await.status, 401);
        assert_eq!(server.asked("GET", "/api/tokenizers/gpt3", &server.place.view).await.status, 404);
        server.stop().await;
    }
}
