//! The page's files, embedded in the program together with compressed copies made at build time.
//!
//! File names are keys of a map without a directory behind them, so no path can escape it.
//!
//! `ServeDir` of tower-http does not serve them. It decodes percent signs, so that one file has many addresses. Its entity
//! tags come from a length and a time, which embedded files do not have. It serves compressed copies under their own
//! names, and ignores `*;q=0`, which has to be answered by 406.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State as Extract},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use headers::{ETag, HeaderMapExt as _};
use rust_embed::RustEmbed;
use thiserror::Error;

use super::{
    State,
    encoding::{Encoding, choose},
    etag,
};

/// The entry page.
const INDEX: &str = "index.html";
/// The minimum number of hexadecimal digits that are considered a content hash in a name. The build writes sixteen.
const HASH_DIGITS_MIN: usize = 16;

/// The output of `cargo xtask run`; empty if it was not run.
#[derive(RustEmbed)]
#[folder = "../../dist"]
#[allow_missing = true]
struct Dist;

/// One encoding of a file.
#[derive(Clone, Debug)]
struct Copy {
    encoding: Encoding,
    bytes: Bytes,
    etag: ETag,
}

#[derive(Clone, Debug)]
struct File {
    content_type: &'static str,
    cache_control: &'static str,
    /// Not empty.
    copies: Vec<Copy>,
}

/// The files by name.
#[derive(Clone, Debug, Default)]
pub struct Assets {
    files: BTreeMap<String, File>,
}

/// The reason why a file is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AssetError {
    /// The file does not exist.
    #[error("There is nothing at this address. The page is at /.")]
    Missing,
    /// The program was built without the page.
    #[error("This headroom was built without the page. Run `cargo xtask run` in its sources: it builds both.")]
    NoPage,
    /// A method other than GET and HEAD.
    #[error("The page can only be read: GET or HEAD.")]
    Method,
    /// `Accept-Encoding` excludes all available encodings.
    #[error("None of the encodings that the request accepts is available: br, gzip and identity are.")]
    NoEncoding,
}

impl Assets {
    /// Returns the files embedded in this program.
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

    /// Creates the map from names, contents and hashes. `x.br` and `x.gz` are copies of `x`.
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
        // Compressed copies without their original are ignored.
        assets.files.retain(|_, file| file.copies.iter().any(|copy| copy.encoding == Encoding::Identity));
        assets
    }

    /// Returns whether the entry page exists.
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
        let found = match name.strip_suffix('/') {
            Some(folder) => self.files.get(&format!("{folder}/{INDEX}")),
            // A page is also available without its `.html`.
            None => self.files.get(name).or_else(|| self.files.get(&format!("{name}.html"))),
        };
        found.ok_or(AssetError::Missing)
    }

    /// Returns the URL of a directory's index, relative to the directory's name without its slash.
    fn folder(&self, path: &str) -> Option<HeaderValue> {
        let name = path.strip_prefix('/').filter(|name| self.files.contains_key(&format!("{name}/{INDEX}")))?;
        HeaderValue::from_str(&format!("{}/", name.rsplit('/').next().unwrap_or(name))).ok()
    }

    fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<Response, AssetError> {
        if method != Method::GET && method != Method::HEAD {
            return Err(AssetError::Method);
        }
        let file = match self.find(path) {
            Ok(file) => file,
            Err(error) => return self.folder(path).map(redirection).ok_or(error),
        };
        let available: Vec<Encoding> = file.copies.iter().map(|copy| copy.encoding).collect();
        let chosen = choose(headers, &available).ok_or(AssetError::NoEncoding)?;
        let copy = file.copies.iter().find(|copy| copy.encoding == chosen).ok_or(AssetError::Missing)?;
        Ok(response(method, headers, file, copy))
    }
}

/// Links in an index are relative to its directory, so the URL must end in a slash.
fn redirection(location: HeaderValue) -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, location)]).into_response()
}

fn response(method: &Method, request: &HeaderMap, file: &File, copy: &Copy) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.typed_insert(copy.etag.clone());
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(file.cache_control));
    if etag::is_cached(request, &copy.etag) {
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

/// Returns the caching policy of a file. A file with a hash in its name never changes. An icon or preview of an earlier
/// build does no harm for a day. Browsers revalidate any other file by its tag.
fn cache_control(name: &str) -> &'static str {
    if name.starts_with("icon") || name.starts_with("previews/") {
        return "public, max-age=86400";
    }
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

/// Serves a file of the page.
pub async fn page(Extract(state): Extract<Arc<State>>, request: Request) -> Response {
    let answer = state.assets.answer(request.method(), request.uri().path(), request.headers());
    answer.unwrap_or_else(IntoResponse::into_response)
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
    fn icons_and_previews_are_kept_for_a_day() {
        for (name, kept) in [
            ("icon.svg", true),
            ("icon-180.png", true),
            ("previews/index.png", true),
            ("docs/images/calculator.png", false),
            ("index.html", false),
        ] {
            assert_eq!(cache_control(name) == "public, max-age=86400", kept, "{name}");
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
    fn folder_serves_its_index_and_redirects_to_its_slash() {
        let names = ["index.html", "docs/index.html", "docs/guide/plan.html"];
        let assets = Assets::new(names.map(|name| (name.to_owned(), Bytes::new(), [0; 32])));
        let answer = |path| assets.answer(&Method::GET, path, &HeaderMap::new());
        for path in ["/", "/docs/", "/docs/index.html", "/docs/index", "/docs/guide/plan.html", "/docs/guide/plan"] {
            assert_eq!(answer(path).expect("a page").status(), StatusCode::OK, "{path}");
        }
        let redirected = answer("/docs").expect("a redirection");
        assert_eq!(redirected.status(), StatusCode::PERMANENT_REDIRECT);
        assert_eq!(redirected.headers()[header::LOCATION], "docs/");
        for path in ["//", "/docs//", "/docs/guide", "/docs/guide/", "/docs/../index.html", "/guide/"] {
            assert_eq!(answer(path).err(), Some(AssetError::Missing), "{path}");
        }
    }

    #[test]
    fn a_copy_of_nothing_is_no_file() {
        let assets = Assets::new([("x.js.br".to_owned(), Bytes::new(), [0; 32])]);
        assert!(assets.files.is_empty());
    }
}
