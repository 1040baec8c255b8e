//! A run's checkpoint, read in parts from the agent that has it: the token in a header, every part of one file, and what
//! breaks off tried again from there.

use std::{cell::RefCell, ops::Range, pin::Pin};

use js_sys::{ArrayBuffer, Uint8Array};
use serde::Deserialize;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Headers, RequestInit, Response};

use super::{pause, scope, words};

/// Bytes that are asked for at once, where so many follow: a model has parameters of few bytes, and a request takes its
/// time. Within what an agent lets a token ask in a second, that is 80 MB of it.
const PART_BYTES: u64 = 4 << 20;
/// How often a part is asked for again, each time after twice the pause: half a minute in all, in which a laptop finds its
/// network again.
const RETRIES_MAX: u32 = 5;
/// Before the first of these.
const RETRY_MILLIS: u32 = 1000;

/// Why a part is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfetched {
    /// The file is another one meanwhile.
    Replaced,
    /// The agent's words, or another's.
    Refused(String),
    /// The browser's words, after every retry.
    Broken(String),
    /// The whole file came in the place of a part, and was not read.
    NoParts,
    /// Something else came than was asked for.
    NotWhole,
}

/// What an agent says where it refuses.
#[derive(Deserialize)]
struct Refusal {
    message: String,
}

/// A part that did not come, and whether it may come yet.
enum Missed {
    Now(String),
    Ever(Unfetched),
}

/// The file.
#[derive(Debug)]
pub struct Remote {
    address: String,
    token: String,
    /// The name of its bytes, by which parts of another are refused.
    etag: String,
    bytes: u64,
    /// Where what is wanted ends: nothing behind it is asked for.
    end: u64,
    /// What was fetched last, and where it begins.
    part: RefCell<(u64, Vec<u8>)>,
}

impl Remote {
    /// Asks for so many of the first bytes, and with them for the file's name and length.
    pub async fn open(address: String, token: String, first_bytes: u64) -> Result<Self, Unfetched> {
        let mut remote =
            Self { address, token, etag: String::new(), bytes: 0, end: first_bytes, part: RefCell::default() };
        let fetched = remote.fetch(0..first_bytes).await?;
        (remote.etag, remote.bytes) = (fetched.etag, fetched.file_bytes);
        remote.part.replace((0, fetched.bytes));
        Ok(remote)
    }

    /// How long the file is.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes from where one reads up to here are wanted, so that parts may be as large as they are cheap.
    pub const fn want(&mut self, end: u64) {
        self.end = end;
    }

    /// Some of its bytes; fewer where the file ends.
    pub async fn read(&self, range: Range<u64>) -> Result<Vec<u8>, Unfetched> {
        let range = range.start..range.end.min(self.bytes);
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let there = |(start, bytes): &(u64, Vec<u8>)| {
            let at = |at: u64| usize::try_from(at.checked_sub(*start)?).ok();
            bytes.get(at(range.start)?..at(range.end)?).map(<[u8]>::to_vec)
        };
        if let Some(bytes) = there(&self.part.borrow()) {
            return Ok(bytes);
        }
        let end = range.start.saturating_add(PART_BYTES).min(self.end).clamp(range.end, self.bytes);
        let fetched = self.fetch(range.start..end).await?;
        self.part.replace((range.start, fetched.bytes));
        there(&self.part.borrow()).ok_or(Unfetched::NotWhole)
    }

    /// Boxed as what reads files is.
    fn fetch(&self, range: Range<u64>) -> Pin<Box<dyn Future<Output = Result<Fetched, Unfetched>> + '_>> {
        Box::pin(self.fetch_again(range))
    }

    async fn fetch_again(&self, range: Range<u64>) -> Result<Fetched, Unfetched> {
        let mut millis = RETRY_MILLIS;
        let mut n_retries = 0;
        loop {
            match self.try_to_fetch(&range).await {
                Ok(fetched) => return Ok(fetched),
                Err(Missed::Ever(why)) => return Err(why),
                Err(Missed::Now(reason)) if n_retries == RETRIES_MAX => return Err(Unfetched::Broken(reason)),
                Err(Missed::Now(_)) => {
                    pause(millis).await;
                    (n_retries, millis) = (n_retries + 1, millis.saturating_mul(2));
                }
            }
        }
    }

    async fn try_to_fetch(&self, range: &Range<u64>) -> Result<Fetched, Missed> {
        let broken = |error: JsValue| Missed::Now(words(&error));
        let answer = self.ask(range).await.map_err(broken)?;
        match answer.status() {
            206 => {}
            // Not read: it may be gigabytes.
            200 => return Err(Missed::Ever(Unfetched::NoParts)),
            412 => return Err(Missed::Ever(Unfetched::Replaced)),
            // The rig is busy, or starts anew behind its proxy.
            status @ (429 | 502 | 503 | 504) => {
                return Err(Missed::Now(format!("{status} {}", answer.status_text())));
            }
            _ => return Err(Missed::Ever(Unfetched::Refused(said(&answer).await))),
        }
        let header = |name| answer.headers().get(name).ok().flatten().unwrap_or_default();
        let (etag, content_range) = (header("etag"), header("content-range"));
        let buffer = JsFuture::from(answer.array_buffer().map_err(broken)?).await.map_err(broken)?;
        let bytes = Uint8Array::new(&buffer.unchecked_into::<ArrayBuffer>()).to_vec();
        let not_whole = Missed::Ever(Unfetched::NotWhole);
        let Some((first, file_bytes)) = place(&content_range) else { return Err(not_whole) };
        let expected = range.end.min(file_bytes).saturating_sub(range.start);
        let is_same = self.etag.is_empty() || (self.etag == etag && self.bytes == file_bytes);
        if etag.is_empty() || first != range.start || bytes.len() as u64 != expected || !is_same {
            return Err(not_whole);
        }
        Ok(Fetched { bytes, etag, file_bytes })
    }

    async fn ask(&self, range: &Range<u64>) -> Result<Response, JsValue> {
        let headers = Headers::new()?;
        headers.set("authorization", &format!("Bearer {}", self.token))?;
        headers.set("range", &format!("bytes={}-{}", range.start, range.end.saturating_sub(1)))?;
        if !self.etag.is_empty() {
            headers.set("if-match", &self.etag)?;
        }
        let init = RequestInit::new();
        init.set_headers(&headers);
        JsFuture::from(scope().fetch_with_str_and_init(&self.address, &init)).await?.dyn_into()
    }
}

/// A part that came.
struct Fetched {
    bytes: Vec<u8>,
    etag: String,
    file_bytes: u64,
}

/// Where a part begins and how long its file is: the first and the last number of `bytes 0-7/36`.
fn place(content_range: &str) -> Option<(u64, u64)> {
    let (range, all) = content_range.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, all.parse().ok()?))
}

/// The agent's words, else the status.
async fn said(answer: &Response) -> String {
    let text = match answer.text() {
        Ok(text) => JsFuture::from(text).await.ok().and_then(|text| text.as_string()),
        Err(_) => None,
    };
    let refusal = text.and_then(|text| serde_json::from_str(&text).ok());
    refusal.map_or_else(|| format!("{} {}", answer.status(), answer.status_text()), |refusal: Refusal| refusal.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_says_where_it_is() {
        assert_eq!(place("bytes 0-7/36"), Some((0, 36)));
        assert_eq!(place("bytes 8-8/18446744073709551615"), Some((8, u64::MAX)));
        for other in ["", "bytes */36", "bytes 0-7", "bytes 0-7/*", "items 0-7/36", "bytes -7/36"] {
            assert_eq!(place(other), None, "{other}");
        }
    }
}
