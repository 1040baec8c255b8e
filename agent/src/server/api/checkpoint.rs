//! A run's checkpoint as a file: whole or one range of it, as it lies on the disk, and never whole in memory.
//!
//! The file is opened once for an answer. A run that saves meanwhile puts another in its place, and the answer goes on
//! with the one that it began with; whoever asks for the rest by the tag of the old one is told that it is gone.

use std::{
    fs::{File, Metadata},
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    sync::Arc,
    time::UNIX_EPOCH,
};

use axum::{
    body::{Body, Bytes},
    extract::{Path, State as Extract},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use futures_util::stream::try_unfold;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use super::query;
use crate::server::{State, error::Refusal, orders::asked};

/// What is read and sent at once: many downloads take little memory, and a disk has enough to do.
const PIECE_BYTES: u64 = 128 << 10;

/// `GET /api/runs/{id}/checkpoint`.
pub async fn get(
    Extract(state): Extract<Arc<State>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let id = query::run(id)?;
    let name = format!("attachment; filename=\"headroom-{id}.safetensors\"");
    let (file, data) = asked(&state.orders, move |orders| {
        let file = orders.checkpoint(&id)?;
        let data = file.metadata().map_err(|_| crate::foreman::Error::NoCheckpoint(id))?;
        Ok((file, data))
    })
    .await?;
    let (n_bytes, tag) = (data.len(), etag(&data));
    let mut response = answer(file, n_bytes, &tag, &headers)?;
    let fixed = [
        (header::ACCEPT_RANGES, "bytes"),
        (header::ETAG, &tag),
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, &name),
        // What is between may not make another file of it.
        (header::CACHE_CONTROL, "no-store, no-transform"),
    ];
    put(&mut response, fixed);
    Ok(response)
}

fn answer(file: File, n_bytes: u64, tag: &str, headers: &HeaderMap) -> Result<Response, Refusal> {
    if let Some(wanted) = tags(headers, &header::IF_MATCH)
        && !wanted.iter().any(|wanted| wanted == "*" || wanted == tag)
    {
        return Err(Refusal::other_checkpoint());
    }
    let is_known = |known: Vec<String>| known.iter().any(|known| known == "*" || known.trim_start_matches("W/") == tag);
    if tags(headers, &header::IF_NONE_MATCH).is_some_and(is_known) {
        return Ok(with_status(StatusCode::NOT_MODIFIED, Body::empty()));
    }
    let may_range = headers.get(header::IF_RANGE).is_none_or(|wanted| wanted.as_bytes() == tag.as_bytes());
    let asked = headers.get(header::RANGE).filter(|_| may_range);
    let (status, range) = match asked.map(|range| range_of(range, n_bytes)) {
        None | Some(Asked::Nothing) => (StatusCode::OK, 0..n_bytes),
        Some(Asked::Range(range)) => (StatusCode::PARTIAL_CONTENT, range),
        Some(Asked::Nowhere) => {
            let mut response = with_status(StatusCode::RANGE_NOT_SATISFIABLE, Body::empty());
            put(&mut response, [(header::CONTENT_RANGE, &*format!("bytes */{n_bytes}"))]);
            return Ok(response);
        }
    };
    let length = (range.end - range.start).to_string();
    let place = format!("bytes {}-{}/{n_bytes}", range.start, range.end.saturating_sub(1));
    let mut response = with_status(status, Body::from_stream(pieces(file, range)));
    put(&mut response, [(header::CONTENT_LENGTH, &*length)]);
    if status == StatusCode::PARTIAL_CONTENT {
        put(&mut response, [(header::CONTENT_RANGE, &*place)]);
    }
    Ok(response)
}

/// A range of a file, piece by piece.
fn pieces(file: File, range: Range<u64>) -> impl futures_util::Stream<Item = io::Result<Bytes>> {
    try_unfold((file, range), async |(mut file, range)| {
        if range.is_empty() {
            return Ok(None);
        }
        let read = spawn_blocking(move || {
            let n = (range.end - range.start).min(PIECE_BYTES);
            let mut piece = Vec::new();
            file.seek(SeekFrom::Start(range.start))?;
            (&mut file).take(n).read_to_end(&mut piece)?;
            // A file that became shorter breaks the answer off, which was promised longer.
            if piece.len() as u64 == n { Ok((piece, file, range.start + n..range.end)) } else { Err(short()) }
        });
        let (piece, file, rest) = read.await.map_err(io::Error::other)??;
        Ok(Some((Bytes::from(piece), (file, rest))))
    })
}

fn short() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// What a Range asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// Nothing that is known: the whole is sent.
    Nothing,
    /// One range.
    Range(Range<u64>),
    /// What the file does not have, or several ranges, which are not sent.
    Nowhere,
}

/// RFC 9110 section 14.1.2.
fn range_of(value: &HeaderValue, n_bytes: u64) -> Asked {
    let Some(spec) = value.to_str().ok().and_then(|value| value.trim().strip_prefix("bytes=")) else {
        return Asked::Nothing;
    };
    let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok());
    let range = match spec.trim().split_once('-') {
        // The last so many.
        Some(("", last)) => number(last).flatten().filter(|n| *n > 0).map(|n| n_bytes.saturating_sub(n)..n_bytes),
        Some((first, "")) => number(first).flatten().map(|first| first..n_bytes),
        Some((first, last)) => {
            let ends = number(first).flatten().zip(number(last).flatten());
            ends.filter(|(first, last)| first <= last).map(|(first, last)| first..last.saturating_add(1).min(n_bytes))
        }
        None => None,
    };
    range.filter(|range| !range.is_empty()).map_or(Asked::Nowhere, Asked::Range)
}

/// The tags of a header, with their quotes; none where it is not there.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<String>> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let tags: Vec<String> = values.flat_map(|value| value.split(',')).map(|tag| tag.trim().to_owned()).collect();
    (!tags.is_empty()).then_some(tags)
}

/// A strong tag: another file in its place has another one, and so has one that was changed.
fn etag(data: &Metadata) -> String {
    let changed = data.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let mut hash = Sha256::new();
    hash.update(data.len().to_le_bytes());
    hash.update(changed.as_nanos().to_le_bytes());
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        // Two files that were written within one tick of the file system's clock.
        hash.update(data.ino().to_le_bytes());
    }
    let digits: String = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

fn with_status(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

fn put<'a>(response: &mut Response, headers: impl IntoIterator<Item = (HeaderName, &'a str)>) {
    for (name, value) in headers {
        // All are of our own letters.
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_of_the_file_s() {
        for (text, asked) in [
            ("bytes=0-3", Asked::Range(0..4)),
            ("bytes=2-", Asked::Range(2..10)),
            ("bytes=-3", Asked::Range(7..10)),
            ("bytes=-30", Asked::Range(0..10)),
            ("bytes=9-9", Asked::Range(9..10)),
            ("bytes=9-18446744073709551615", Asked::Range(9..10)),
            ("bytes=10-", Asked::Nowhere),
            ("bytes=3-2", Asked::Nowhere),
            ("bytes=-0", Asked::Nowhere),
            ("bytes=-", Asked::Nowhere),
            ("bytes=", Asked::Nowhere),
            ("bytes=0-1,3-4", Asked::Nowhere),
            ("bytes=+1-2", Asked::Nowhere),
            ("bytes=1-18446744073709551616", Asked::Nowhere),
            ("tokens=0-3", Asked::Nothing),
            ("0-3", Asked::Nothing),
        ] {
            assert_eq!(range_of(&HeaderValue::from_static(text), 10), asked, "{text}");
        }
        assert_eq!(range_of(&HeaderValue::from_static("bytes=0-"), 0), Asked::Nowhere, "an empty file");
    }
}
