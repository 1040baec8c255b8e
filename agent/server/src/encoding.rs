//! Negotiation of a file's encoding by `Accept-Encoding` (RFC 9110, section 12.5.3).

use axum::http::{HeaderMap, header};

/// An encoding of a file. Earlier variants are smaller and preferred at equal quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encoding {
    /// `br`.
    Brotli,
    /// `gzip`.
    Gzip,
    /// The file without compression.
    Identity,
}

impl Encoding {
    /// Returns the name in `Content-Encoding`; `None` for the uncompressed file.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Brotli => Some("br"),
            Self::Gzip => Some("gzip"),
            Self::Identity => None,
        }
    }

    fn is_named(self, coding: &str) -> bool {
        let names: &[&str] = match self {
            Self::Brotli => &["br"],
            // An alias from before 1999 that recipients must still accept.
            Self::Gzip => &["gzip", "x-gzip"],
            Self::Identity => &["identity"],
        };
        names.iter().any(|name| coding.eq_ignore_ascii_case(name))
    }
}

/// A quality value in thousandths, because the header has at most three decimals.
type Quality = u16;
const MOST: Quality = 1000;

/// Returns the client's preferred encoding of `available`; `None` if it accepts none of them.
pub fn choose(headers: &HeaderMap, available: &[Encoding]) -> Option<Encoding> {
    let wanted = members(headers);
    let quality = |encoding: Encoding| {
        let named = wanted.iter().filter(|(coding, _)| encoding.is_named(coding)).map(|(_, quality)| *quality).max();
        let any = || wanted.iter().find(|(coding, _)| coding == "*").map(|(_, quality)| *quality);
        match (named.or_else(any), encoding) {
            (Some(quality), _) => quality,
            // The uncompressed file is acceptable by default, but any listed encoding comes first.
            (None, Encoding::Identity) => 1,
            (None, _) => 0,
        }
    };
    let best = available.iter().copied().max_by_key(|encoding| (quality(*encoding), std::cmp::Reverse(*encoding)))?;
    (quality(best) > 0).then_some(best)
}

/// Returns the listed encodings with their qualities. Malformed members are ignored.
fn members(headers: &HeaderMap) -> Vec<(String, Quality)> {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(member).collect()
}

fn member(text: &str) -> Option<(String, Quality)> {
    let mut parts = text.split(';').map(str::trim);
    let coding = parts.next().filter(|coding| !coding.is_empty())?.to_ascii_lowercase();
    let quality = match parts.next() {
        None => MOST,
        Some(weight) => {
            let (name, value) = weight.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then(|| thousandths(value.trim()))??
        }
    };
    parts.next().is_none().then_some((coding, quality))
}

/// Parses `0` or `1` with up to three decimals, which must be zeros for 1.
fn thousandths(text: &str) -> Option<Quality> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let decimals: Quality = format!("{decimals:0<3}").parse().ok()?;
    match (whole, decimals) {
        ("0", decimals) => Some(decimals),
        ("1", 0) => Some(MOST),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Encoding::{Brotli, Gzip, Identity};

    const ALL: &[Encoding] = &[Brotli, Gzip, Identity];

    fn headers(values: &[&str]) -> HeaderMap {
        let pairs = values.iter().map(|value| (header::ACCEPT_ENCODING, value.parse().expect("a value")));
        let mut headers = HeaderMap::new();
        pairs.for_each(|(name, value)| {
            headers.append(name, value);
        });
        headers
    }

    #[track_caller]
    fn check(accept: &[&str], available: &[Encoding], expected: Option<Encoding>) {
        assert_eq!(choose(&headers(accept), available), expected, "{accept:?}");
    }

    #[test]
    fn a_browser_gets_brotli() {
        check(&["gzip, deflate, br, zstd"], ALL, Some(Brotli));
        check(&["gzip", "br"], ALL, Some(Brotli));
        check(&["GZIP;Q=1.0 , BR ; q=1"], ALL, Some(Brotli));
    }

    #[test]
    fn weights_decide() {
        check(&["gzip;q=0.9, br;q=0.8"], ALL, Some(Gzip));
        check(&["gzip;q=0.001, br;q=0"], ALL, Some(Gzip));
        check(&["identity, br;q=0.5"], ALL, Some(Identity));
        check(&["br;q=0.000, gzip;q=0"], ALL, Some(Identity));
        check(&["gzip, br"], &[Gzip, Identity], Some(Gzip));
    }

    #[test]
    fn request_without_known_encoding_gets_identity() {
        check(&[], ALL, Some(Identity));
        check(&[""], ALL, Some(Identity));
        check(&["zstd"], ALL, Some(Identity));
    }

    #[test]
    fn star_matches_unnamed_encodings() {
        check(&["*"], ALL, Some(Brotli));
        check(&["br;q=0, *"], ALL, Some(Gzip));
        check(&["*;q=0, gzip;q=0.1"], ALL, Some(Gzip));
        check(&["*;q=0"], ALL, None);
        check(&["identity;q=0"], &[Identity], None);
        check(&["identity;q=0, br"], ALL, Some(Brotli));
    }

    #[test]
    fn a_malformed_member_says_nothing() {
        for malformed in
            ["br;q=2", "br;q=1.001", "br;q=0.0001", "br;q=", "br;q=-1", "br;level=5", "br;q=1;q=1", ";q=1", "br;q=1e0"]
        {
            check(&[malformed], ALL, Some(Identity));
        }
    }
}
