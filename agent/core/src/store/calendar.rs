//! Human-readable times, converted by SQLite's date functions in the machine's time zone.

use rusqlite::Connection;

use super::samples::{from_sql, to_sql};

/// Formats a time as `2026-11-22 02:55:00` in local time; `None` if it is outside the calendar's range.
pub fn local(time_ms: u64) -> Option<String> {
    asked("strftime('%Y-%m-%d %H:%M:%S', ?1 / 1000, 'unixepoch', 'localtime')", to_sql(time_ms))
}

/// Formats a time as `20261122T025500Z`, for file names.
pub fn stamp(time_ms: u64) -> Option<String> {
    asked("strftime('%Y%m%dT%H%M%SZ', ?1 / 1000, 'unixepoch')", to_sql(time_ms))
}

/// Parses a time: a duration before `now_ms` such as `90m`, `24h` or `30d`, or a date such as `2026-11-22` or
/// `2026-11-22 02:55`. Dates are in local time, or in UTC with the suffix `Z`.
pub fn parse(text: &str, now_ms: u64) -> Option<u64> {
    let text = text.trim();
    let unit_ms = |unit| match unit {
        's' => Some(1000),
        'm' => Some(60_000),
        'h' => Some(3_600_000),
        'd' => Some(86_400_000),
        _ => None,
    };
    let mut chars = text.chars();
    let ago = chars.next_back().and_then(unit_ms).zip(chars.as_str().parse::<u64>().ok());
    if let Some((unit_ms, n)) = ago {
        return Some(now_ms.saturating_sub(n.saturating_mul(unit_ms)));
    }
    // A calendar date. SQLite alone would also accept `now` and plain numbers.
    if text.as_bytes().get(4) != Some(&b'-') {
        return None;
    }
    let seconds: Option<i64> = match text.strip_suffix(['Z', 'z']) {
        Some(utc) => asked("unixepoch(?1)", utc),
        None => asked("unixepoch(?1, 'utc')", text),
    };
    seconds.map(|seconds| from_sql(seconds).saturating_mul(1000))
}

fn asked<T: rusqlite::types::FromSql>(what: &str, of: impl rusqlite::ToSql) -> Option<T> {
    let connection = Connection::open_in_memory().ok()?;
    connection.query_row(&format!("SELECT {what}"), [of], |row| row.get::<_, Option<T>>(0)).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_795_000_000_000;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, time_ms) in [
            ("90m", Some(NOW_MS - 90 * 60_000)),
            ("24h", Some(NOW_MS - 86_400_000)),
            ("30d", Some(NOW_MS - 30 * 86_400_000)),
            ("5s", Some(NOW_MS - 5000)),
            ("99999999999999999999d", None),
            ("18446744073709551615d", Some(0)),
            ("2026-11-18T11:06:40Z", Some(NOW_MS)),
            ("2026-11-18 11:06Z", Some(NOW_MS - 40_000)),
            ("2026-11-18Z", Some(NOW_MS - 40_000 - 6 * 60_000 - 11 * 3_600_000)),
            ("2026-13-18Z", None),
            ("now", None),
            ("", None),
            ("h", None),
            ("-3h", None),
            ("1795000000", None),
        ] {
            assert_eq!(parse(text, NOW_MS), time_ms, "{text:?}");
        }
    }

    #[test]
    fn written_data_reads_back() {
        // Independent of the test machine's time zone.
        let text = local(NOW_MS).expect("a time");
        assert_eq!(parse(&text, 0), Some(NOW_MS), "{text}");
        assert_eq!(stamp(NOW_MS).as_deref(), Some("20261118T110640Z"));
        assert_eq!(local(u64::MAX), None);
    }
}
