//! The page's files, from the program itself, each with the copies that were compressed when it was built.
//!
//! A request names a file or it does not: there is no folder behind the names, so no path leads anywhere else.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State as Extract},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use rust_embed::RustEmbed;
use thiserror::Error;

use super::{
    State,
    encoding::{Encoding, choose},
    error::Refusal,
    etag,
};

/// The page's entry.
const INDEX: &str = "index.html";
/// Hexadecimal digits at which a part of a name is taken for a hash of the content; Trunk writes sixteen.
const HASH_DIGITS_MIN: usize = 16;

/// What `cargo xtask run` builds; empty where it was not run.
#[derive(RustEmbed)]
#[folder = "../dist"]
#[allow_missing = true]
struct Dist;

/// One form of a file.
#[derive(Clone, Debug)]
struct Copy {
    encoding: Encoding,
    bytes: Bytes,
    /// With its quotes.
    etag: HeaderValue,
}

#[derive(Clone, Debug)]
struct File {
    content_type: &'static str,
    cache_control: &'static str,
    /// At least one.
    copies: Vec<Copy>,
}

/// The files by name.
#[derive(Clone, Debug, Default)]
pub struct Assets {
    files: BTreeMap<String, File>,
}

/// Why a file is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AssetError {
    /// No such file.
    #[error("There is nothing at this address. The page is at /.")]
    Missing,
    /// The program was built alone.
    #[error("This headroom was built without the page. Run `cargo xtask run` in its sources: it builds both.")]
    NoPage,
    /// Neither GET nor HEAD.
    #[error("The page can only be read: GET or HEAD.")]
    Method,
    /// Every form is excluded by Accept-Encoding.
    #[error("None of the encodings that the request accepts is available: br, gzip and identity are.")]
    NoEncoding,
}

impl Assets {
    /// The page in this program.
    pub fn embedded() -> Self {
        Self::new(Dist::iter().filter_map(|name| {
            let file = Dist::get(&name)?;
            let bytes = match file.data {
                std::borrow::Cow::Borrowed(bytes) => Bytes::from_static(bytes),
                std::borrow::Cow::Owned(bytes) => bytes.into(),
            };
            Some((name.into_owned(), bytes, file.metadata.sha256_hash()))
        }))
    }

    /// Files with their names and the hash of their content. `x.br` and `x.gz` are copies of `x`.
    pub fn new(files: impl IntoIterator<Item = (String, Bytes, [u8; 32])>) -> Self {
        let mut assets = Self::default();
        for (name, bytes, hash) in files {
            let (name, encoding) = match name.rsplit_once('.') {
                Some((name, "br")) => (name.to_owned(), Encoding::Brotli),
                Some((name, "gz")) => (name.to_owned(), Encoding::Gzip),
                _ => (name, Encoding::Identity),
            };
            let file = assets.files.entry(name).or_insert_with_key(|name| File {
                content_type: content_type(name),
                cache_control: cache_control(name),
                copies: Vec::new(),
            });
            file.copies.push(Copy { encoding, bytes, etag: etag::strong(hash) });
        }
        // A copy of nothing is no file.
        assets.files.retain(|_, file| file.copies.iter().any(|copy| copy.encoding == Encoding::Identity));
        assets
    }

    /// Whether there is a page at all.
    pub fn has_page(&self) -> bool {
        self.files.contains_key(INDEX)
    }

    fn find(&self, path: &str) -> Result<&File, AssetError> {
        let name = match path.strip_prefix('/') {
            Some("") if !self.has_page() => return Err(AssetError::NoPage),
            Some("") => INDEX,
            Some(name) => name,
            None => return Err(AssetError::Missing),
        };
        // A page goes by its plain name too.
        self.files.get(name).or_else(|| self.files.get(&format!("{name}.html"))).ok_or(AssetError::Missing)
    }

    fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<Response, AssetError> {
        if method != Method::GET && method != Method::HEAD {
            return Err(AssetError::Method);
        }
        let file = self.find(path)?;
        let available: Vec<Encoding> = file.copies.iter().map(|copy| copy.encoding).collect();
        let chosen = choose(headers, &available).ok_or(AssetError::NoEncoding)?;
        let copy = file.copies.iter().find(|copy| copy.encoding == chosen).ok_or(AssetError::Missing)?;
        Ok(response(method, headers, file, copy))
    }
}

fn response(method: &Method, request: &HeaderMap, file: &File, copy: &Copy) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::ETAG, copy.etag.clone());
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(file.cache_control));
    if etag::names(request, &header::IF_NONE_MATCH, &copy.etag, true) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    headers.insert(header::CONTENT_LENGTH, copy.bytes.len().into());
    if let Some(encoding) = copy.encoding.name() {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    if method == Method::GET {
        *response.body_mut() = Body::from(copy.bytes.clone());
    }
    response
}

/// A name with a hash never changes its content; any other is asked for again each time, and a 304 answers.
fn cache_control(name: &str) -> &'static str {
    let is_hash = |part: &str| part.len() >= HASH_DIGITS_MIN && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hashed = name.split(['/', '.', '-', '_']).any(is_hash);
    if hashed { "public, max-age=31536000, immutable" } else { "no-cache" }
}

fn content_type(name: &str) -> &'static str {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "wasm" => "application/wasm",
        "json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        "xml" => "application/xml",
        _ => "application/octet-stream",
    }
}

/// Answers with a file of the page.
pub async fn page(Extract(state): Extract<Arc<State>>, request: Request) -> Response {
    let answer = state.assets.answer(request.method(), request.uri().path(), request.headers());
    answer.unwrap_or_else(|error| {
        let mut response = Refusal::from(error).into_response();
        if error == AssetError::Method {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hashed_names_are_kept_for_ever() {
        for (name, immutable) in [
            ("headroom-web-0123456789abcdef.js", true),
            ("headroom-web-0123456789abcdef_bg.wasm", true),
            ("snippets/web-sys-0123456789abcdef/inline0.js", true),
            ("index.html", false),
            ("boot.js", false),
            ("app-0123456789abcde.js", false),
            ("facade.css", false),
        ] {
            assert_eq!(cache_control(name).contains("immutable"), immutable, "{name}");
        }
    }

    #[test]
    fn a_page_goes_by_its_plain_name_too() {
        let assets = Assets::new(["index.html", "demo.html"].map(|name| (name.to_owned(), Bytes::new(), [0; 32])));
        assert_eq!(assets.find("/demo").expect("a page").content_type, "text/html; charset=utf-8");
        for path in ["/demo/", "/demo.html.html", "/other", "//demo"] {
            assert_eq!(assets.find(path).err(), Some(AssetError::Missing), "{path}");
        }
    }

    #[test]
    fn a_copy_of_nothing_is_no_file() {
        let assets = Assets::new([("x.js.br".to_owned(), Bytes::new(), [0; 32])]);
        assert!(assets.files.is_empty());
    }
}
