//! GPT-2's tokenizer, for a page that lets a checkpoint of its vocabulary write: such a checkpoint has the name alone.
//!
//! It is the same for everybody and as long as the program is. A browser keeps it, and asks each time whether it may.

use std::sync::OnceLock;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use crate::{
    data::tokenizer::tokenizer_json,
    server::{error::Refusal, etag},
};

/// Kept by who asked, and asked for again with its tag: an answer is for those with a token, today as well.
const CACHE: HeaderValue = HeaderValue::from_static("private, no-cache");

/// `GET` and `HEAD /api/tokenizers/gpt2`.
pub async fn answer(request: HeaderMap) -> Result<Response, Refusal> {
    // The first one makes it, and those who come meanwhile wait for that.
    let made = spawn_blocking(|| tokenizer_json().map(|json| (json, tag(json)))).await;
    let (json, etag) = made.ok().flatten().ok_or_else(Refusal::internal)?;
    let headers = [(header::ETAG, etag.clone()), (header::CACHE_CONTROL, CACHE)];
    if etag::names(&request, &header::IF_NONE_MATCH, etag, true) {
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    let mut response = (headers, Body::from(Bytes::from_static(json.as_bytes()))).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// What the file is, with its quotes.
fn tag(json: &str) -> &'static HeaderValue {
    static TAG: OnceLock<HeaderValue> = OnceLock::new();
    TAG.get_or_init(|| etag::strong(Sha256::digest(json)))
}

#[cfg(test)]
mod tests {
    use headroom_shared::tokenizer::bpe::ByteBpe;

    use crate::server::tests::talk::Server;

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
        // What is kept is still for those with a token.
        let lines = [format!("If-None-Match: {etag}")];
        assert_eq!(server.request("GET", PATH, &lines.each_ref().map(String::as_str)).await.status, 401);
        assert_eq!(server.asked("GET", "/api/tokenizers/gpt3", &server.place.view).await.status, 404);
        server.stop().await;
    }
}
