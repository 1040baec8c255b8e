//! A run's newest checkpoint, whole or in parts: what a page fetches to write with the model while it is trained.
//!
//! The file is opened once an answer and read in pieces, so that a checkpoint of gigabytes takes no more memory than one
//! of kilobytes, and a newer one that is put in its place changes nothing of an answer that has begun. Its tag tells parts
//! of two checkpoints apart. What is in the file is none of this module's business.

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
    extract::{Path as Named, State as Extract},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures_util::stream::try_unfold;
use headroom_shared::text;
use http_range_header::parse_range_header;
use sha2::{Digest as _, Sha256};
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking};

use super::query;
use crate::server::{
    State, archive,
    error::Refusal,
    etag::{self, names},
    orders,
};

/// Answers at once that read a checkpoint: a few people with a page each. Each has a file open, and a piece in memory.
pub const CHECKPOINT_READS_MAX: usize = 16;
/// Bytes that are read at once: enough for a disk, and little for sixteen answers.
const PIECE_BYTES: usize = 256 * 1024;
/// Bytes of a file's end that its tag is made of. A checkpoint ends in checksums of all that is in it.
const TAIL_BYTES: u64 = 64;

/// `GET` and `HEAD /api/runs/{id}/checkpoint`.
pub async fn answer(
    Extract(state): Extract<Arc<State>>,
    Named(id): Named<String>,
    request: HeaderMap,
) -> Result<Response, Refusal> {
    let id = query::run(id)?;
    let run = archive::asked(&state.archive, move |archive| archive.run(&id)).await?;
    if run.order.is_none() {
        return Err(Refusal::no_checkpoint(text::CHECKPOINT_ELSEWHERE.to_string()));
    }
    let place = Arc::clone(&state.checkpoint_reads).try_acquire_owned().map_err(|_| Refusal::too_many_checkpoints())?;
    let file = orders::asked(&state.orders, move |orders| orders.checkpoint(&run.id)).await?;
    let opened = spawn_blocking(move || Opened::new(file)).await.map_err(|_| Refusal::internal())?;
    // Read and not read within a moment: the disk is at fault.
    let opened =
        opened.map_err(|error| Refusal::no_checkpoint(text::checkpoint_unreadable(error.to_string()).to_string()))?;
    opened.answer(&request, place)
}

/// A checkpoint's file, which stays the same however often it is replaced.
#[derive(Debug)]
struct Opened {
    file: File,
    bytes: u64,
    /// With its quotes.
    etag: HeaderValue,
}

impl Opened {
    fn new(mut file: File) -> io::Result<Self> {
        let about = file.metadata()?;
        let bytes = about.len();
        let mut hash = Sha256::new();
        hash.update(bytes.to_le_bytes());
        // Two checkpoints of one second, on a disk that counts in seconds, are told apart by what they end with.
        if let Some(time) = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()) {
            hash.update(time.as_nanos().to_le_bytes());
        }
        file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES)))?;
        let mut tail = Vec::new();
        (&mut file).take(TAIL_BYTES).read_to_end(&mut tail)?;
        hash.update(&tail);
        Ok(Self { file, bytes, etag: etag::strong(hash.finalize()) })
    }

    /// What is asked for of it, in the order of RFC 9110, section 13.2.2.
    fn answer(self, request: &HeaderMap, place: OwnedSemaphorePermit) -> Result<Response, Refusal> {
        if request.contains_key(header::IF_MATCH) && !names(request, &header::IF_MATCH, &self.etag, false) {
            return Err(Refusal::checkpoint_changed());
        }
        if names(request, &header::IF_NONE_MATCH, &self.etag, true) {
            return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, self.etag)]).into_response());
        }
        let (etag, bytes) = (self.etag.clone(), self.bytes);
        let mut response = match range(request, &self.etag, bytes) {
            Asked::All => self.part(0..=bytes.saturating_sub(1), StatusCode::OK, place),
            Asked::Part(range) => {
                let content_range = format!("bytes {}-{}/{bytes}", range.start(), range.end());
                let mut response = self.part(range, StatusCode::PARTIAL_CONTENT, place);
                let value = HeaderValue::try_from(content_range).map_err(|_| Refusal::internal())?;
                response.headers_mut().insert(header::CONTENT_RANGE, value);
                response
            }
            Asked::None => {
                let mut response = Refusal::range(bytes).into_response();
                let value = HeaderValue::try_from(format!("bytes */{bytes}"));
                response.headers_mut().insert(header::CONTENT_RANGE, value.map_err(|_| Refusal::internal())?);
                return Ok(response);
            }
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, etag);
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        Ok(response)
    }

    /// The bytes of a range, which is within the file; read as they are taken.
    fn part(self, range: RangeInclusive<u64>, status: StatusCode, place: OwnedSemaphorePermit) -> Response {
        let (start, end) = (*range.start(), range.end().saturating_add(1).min(self.bytes));
        let pieces = try_unfold((self.file, start, place), move |(file, at, place)| async move {
            if at >= end {
                return Ok(None);
            }
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let read = spawn_blocking(move || piece(file, at, wanted));
            // A connection that breaks off says that this is not all.
            let (file, bytes) = read.await.map_err(io::Error::other)??;
            let next = at + bytes.len() as u64;
            Ok::<_, io::Error>(Some((bytes, (file, next, place))))
        });
        let mut response = (status, Body::from_stream(pieces)).into_response();
        response.headers_mut().insert(header::CONTENT_LENGTH, end.saturating_sub(start).into());
        response
    }
}

/// Reads so many bytes, and gives the file back.
fn piece(mut file: File, at: u64, wanted: usize) -> io::Result<(File, Bytes)> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = vec![0; wanted];
    file.read_exact(&mut bytes)?;
    Ok((file, bytes.into()))
}

/// How much is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    All,
    Part(RangeInclusive<u64>),
    /// Nothing that is there.
    None,
}

fn range(request: &HeaderMap, etag: &HeaderValue, bytes: u64) -> Asked {
    let Some(value) = request.get(header::RANGE) else { return Asked::All };
    // A date names no bytes for certain, so that whoever sends one gets all of them.
    if request.get(header::IF_RANGE).is_some_and(|tag| tag != etag) {
        return Asked::All;
    }
    // What is counted in something else than bytes is not understood, and counts as not said.
    let Some(value) = value.to_str().ok().filter(|value| value.starts_with("bytes=")) else { return Asked::All };
    let ranges = parse_range_header(value).and_then(|ranges| ranges.validate(bytes));
    match ranges.as_deref() {
        Ok([range]) if bytes > 0 => Asked::Part(range.clone()),
        _ => Asked::None,
    }
}
