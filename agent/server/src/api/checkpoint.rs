//! A run's newest checkpoint, complete or in ranges. A page downloads it to generate text during training.
//!
//! Each response opens the file once and reads it in pieces, so memory use does not depend on the checkpoint's size. A
//! newer checkpoint that replaces the file does not affect responses in progress. The entity tag distinguishes ranges
//! of different checkpoints. Tokens without scope `control` receive a redacted config, see [`content`].

mod content;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    ops::RangeInclusive,
    sync::Arc,
    time::UNIX_EPOCH,
};

use axum::{
    body::{Body, Bytes},
    extract::State as Extract,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use content::Content;
use futures_util::stream::try_unfold;
use headers::{ETag, HeaderMapExt as _, IfMatch, IfRange};
use headroom_protocol::Scope;
use headroom_text as text;
use http_range_header::parse_range_header;
use sha2::{Digest as _, Sha256};
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking};
use tracing::Span;

use super::path::RunId;
use crate::{State, archive, audience::Audience, blocking::blocking, error::ApiError, etag, orders};
use headroom_agent_core::logging::HTTP;

/// The maximum number of simultaneous downloads: a few people with a page each. Each has an open file and one piece in
/// memory.
pub const CHECKPOINT_READS_MAX: usize = 16;
/// The number of bytes read at once: efficient for a disk, and little for sixteen responses.
const PIECE_BYTES: usize = 256 * 1024;
/// The number of bytes at the end of the file that enter its tag. A checkpoint ends in checksums of its whole content.
const TAIL_BYTES: u64 = 64;

/// `GET` and `HEAD /api/runs/{id}/checkpoint`.
pub async fn answer(
    Extract(state): Extract<Arc<State>>,
    RunId(id): RunId,
    audience: Audience,
    request: HeaderMap,
) -> Result<Response, ApiError> {
    let run = archive::asked(&state.archive, move |archive| archive.run(&id)).await?;
    if run.order.is_none() {
        return Err(ApiError::no_checkpoint(text::CHECKPOINT_ELSEWHERE));
    }
    let place =
        Arc::clone(&state.checkpoint_reads).try_acquire_owned().map_err(|_| ApiError::too_many_checkpoints())?;
    let run = run.id;
    let id = run.clone();
    let file = orders::asked(&state.orders, move |orders| orders.checkpoint(&id)).await?;
    let opened = blocking(move || OpenCheckpoint::new(file, audience)).await?;
    // The file could be opened but not read, or secrets cannot be found in a damaged one.
    let opened = opened.map_err(|error| {
        tracing::warn!(target: HTTP, run, %error, "cannot read a checkpoint");
        ApiError::no_checkpoint(text::checkpoint_unreadable(error.to_string()))
    })?;
    opened.answer(&request, place)
}

/// An open checkpoint, which replacing the file does not affect.
#[derive(Debug)]
struct OpenCheckpoint {
    file: File,
    content: Content,
    etag: ETag,
}

impl OpenCheckpoint {
    fn new(mut file: File, Audience(scope): Audience) -> io::Result<Self> {
        let about = file.metadata()?;
        let bytes = about.len();
        let mut hash = Sha256::new();
        hash.update(bytes.to_le_bytes());
        // On file systems with timestamps in seconds, only the last bytes distinguish two checkpoints of the same
        // second.
        if let Some(time) = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()) {
            hash.update(time.as_nanos().to_le_bytes());
        }
        file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES)))?;
        let mut tail = Vec::new();
        (&mut file).take(TAIL_BYTES).read_to_end(&mut tail)?;
        hash.update(&tail);
        let content = if scope < Scope::Control { Content::redacted(&mut file, bytes)? } else { Content::whole(bytes) };
        // Parts of the file and of its redacted form do not belong together.
        content.replaced().for_each(|bytes| hash.update(bytes));
        Ok(Self { file, content, etag: etag::strong(hash.finalize()) })
    }

    /// Evaluates the preconditions and the range of a request in the order of RFC 9110, section 13.2.2.
    fn answer(self, request: &HeaderMap, place: OwnedSemaphorePermit) -> Result<Response, ApiError> {
        let is_expected = |condition: IfMatch| condition.precondition_passes(&self.etag);
        if !request.typed_get().is_none_or(is_expected) {
            return Err(ApiError::checkpoint_changed());
        }
        if etag::is_cached(request, &self.etag) {
            let mut response = StatusCode::NOT_MODIFIED.into_response();
            response.headers_mut().typed_insert(self.etag);
            return Ok(response);
        }
        let (etag, bytes) = (self.etag.clone(), self.content.len());
        let mut response = match range(request, &self.etag, bytes) {
            QueryParameters::All => self.part(0..=bytes.saturating_sub(1), StatusCode::OK, place),
            QueryParameters::Part(range) => {
                let content_range = format!("bytes {}-{}/{bytes}", range.start(), range.end());
                let mut response = self.part(range, StatusCode::PARTIAL_CONTENT, place);
                let value = HeaderValue::try_from(content_range).map_err(ApiError::internal)?;
                response.headers_mut().insert(header::CONTENT_RANGE, value);
                response
            }
            QueryParameters::None => {
                let mut response = ApiError::range(bytes).into_response();
                let value = HeaderValue::try_from(format!("bytes */{bytes}"));
                response.headers_mut().insert(header::CONTENT_RANGE, value.map_err(ApiError::internal)?);
                return Ok(response);
            }
        };
        let headers = response.headers_mut();
        headers.typed_insert(etag);
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        Ok(response)
    }

    /// Streams a range within the content.
    fn part(self, range: RangeInclusive<u64>, status: StatusCode, place: OwnedSemaphorePermit) -> Response {
        let (start, end) = (*range.start(), range.end().saturating_add(1).min(self.content.len()));
        let source = (self.file, self.content);
        let span = Span::current();
        let pieces = try_unfold((source, start, place, span), move |(source, at, place, span)| async move {
            if at >= end {
                return Ok(None);
            }
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let read = spawn_blocking(move || piece(source, at, wanted)).await.map_err(io::Error::other).flatten();
            // An aborted connection signals an incomplete response.
            let (source, bytes) = read.inspect_err(|error| {
                tracing::error!(target: HTTP, parent: &span, %error, "cannot read the rest of a checkpoint");
            })?;
            let next = at + bytes.len() as u64;
            Ok::<_, io::Error>(Some((bytes, (source, next, place, span))))
        });
        let mut response = (status, Body::from_stream(pieces)).into_response();
        response.headers_mut().insert(header::CONTENT_LENGTH, end.saturating_sub(start).into());
        response
    }
}

/// Reads at most `wanted` bytes, and returns them with their source.
fn piece((mut file, content): (File, Content), at: u64, wanted: usize) -> io::Result<((File, Content), Bytes)> {
    let bytes = content.read(&mut file, at, wanted)?;
    Ok(((file, content), bytes))
}

/// The requested part of a file.
#[derive(Debug, PartialEq, Eq)]
enum QueryParameters {
    All,
    Part(RangeInclusive<u64>),
    /// A range outside of the file, or several ranges.
    None,
}

fn range(request: &HeaderMap, etag: &ETag, bytes: u64) -> QueryParameters {
    let Some(value) = request.get(header::RANGE) else { return QueryParameters::All };
    // A date does not identify the content reliably, so such requests get the whole file.
    let is_modified = |condition: IfRange| condition.is_modified(Some(etag), None);
    if request.contains_key(header::IF_RANGE) && request.typed_get().is_none_or(is_modified) {
        return QueryParameters::All;
    }
    // Ranges in units other than bytes are ignored.
    let Some(value) = value.to_str().ok().filter(|value| value.starts_with("bytes=")) else {
        return QueryParameters::All;
    };
    let ranges = parse_range_header(value).and_then(|ranges| ranges.validate(bytes));
    match ranges.as_deref() {
        Ok([range]) if bytes > 0 => QueryParameters::Part(range.clone()),
        _ => QueryParameters::None,
    }
}
