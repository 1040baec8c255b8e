//! Formatting and parsing of byte sizes.

use crate::{decimal, not_a_size};

/// Bytes in a KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;

/// Formats bytes like PyTorch's messages: `format_size` of c10/cuda/CUDACachingAllocator.cpp.
#[must_use]
pub fn pytorch_size(bytes: u64) -> String {
    if bytes <= KIB {
        format!("{bytes} bytes")
    } else if bytes <= MIB {
        decimal::ratio(bytes, KIB, 2) + " KiB"
    } else if bytes <= GIB {
        decimal::ratio(bytes, MIB, 2) + " MiB"
    } else {
        decimal::ratio(bytes, GIB, 2) + " GiB"
    }
}

/// Formats bytes for display in the largest fitting unit from B to TiB. TiB and GiB have two decimals; amounts from 1
/// to 10 MiB have one.
#[must_use]
pub fn human_size(bytes: u64) -> String {
    if bytes >= KIB * GIB {
        decimal::ratio(bytes, KIB * GIB, 2) + " TiB"
    } else if bytes >= GIB {
        decimal::ratio(bytes, GIB, 2) + " GiB"
    } else if bytes >= MIB {
        decimal::ratio(bytes, MIB, if bytes < 10 * MIB { 1 } else { 0 }) + " MiB"
    } else if bytes >= KIB {
        decimal::ratio(bytes, KIB, 0) + " KiB"
    } else {
        format!("{bytes} B")
    }
}

/// An invalid size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", not_a_size(self.text.as_str()))]
pub struct ParseSizeError {
    /// The given text.
    pub text: String,
}

/// Parses a size with a unit: B, KiB, MiB, GiB, TiB are powers of 1024; kB, MB, GB, TB are powers of 1000. Without a
/// unit it is in bytes.
///
/// # Errors
/// Returns an error if there is no number, the unit is unknown, or the size is negative or exceeds `u64`.
pub fn parse_size(text: &str) -> Result<u64, ParseSizeError> {
    let error = || ParseSizeError { text: text.chars().take(40).collect() };
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" | "bytes" => 1,
        "kib" | "k" => KIB,
        "mib" | "m" => MIB,
        "gib" | "g" => GIB,
        "tib" | "t" => GIB * KIB,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(error()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(error);
    }
    let number = decimal::parse(number).ok_or_else(error)?;
    let bytes = number * factor as f64;
    if !(0.0..9.0e18).contains(&bytes) {
        return Err(error());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked above")]
    Ok(bytes.round() as u64)
}

/// Returns a time with three digits, and its unit.
#[must_use]
pub fn time_parts(seconds: f64) -> (String, &'static str) {
    let (value, unit) = match seconds {
        seconds if seconds < 0.9995e-6 => (seconds * 1e9, "ns"),
        seconds if seconds < 0.9995e-3 => (seconds * 1e6, "µs"),
        seconds if seconds < 0.9995 => (seconds * 1e3, "ms"),
        seconds => (seconds, "s"),
    };
    (three_digits(value), unit)
}

/// Returns an energy with three digits, and its unit.
#[must_use]
pub fn energy_parts(watt_hours: f64) -> (String, &'static str) {
    let (value, unit) = match watt_hours {
        small if small < 0.9995 => (small * 1e3, "mWh"),
        medium if medium < 999.5 => (medium, "Wh"),
        large => (large / 1e3, "kWh"),
    };
    (three_digits(value), unit)
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    decimal::fixed(value, decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_sizes_as_pytorch_does() {
        for (bytes, text) in [
            (512, "512 bytes"),
            (2 * MIB, "2.00 MiB"),
            (1024, "1024 bytes"),
            (183_296, "179.00 KiB"),
            (6_593_445_888, "6.14 GiB"),
            (GIB, "1024.00 MiB"),
        ] {
            assert_eq!(pytorch_size(bytes), text);
        }
    }

    #[test]
    fn prints_energies_with_three_digits() {
        for (watt_hours, text) in [
            (0.0005, "0.50 mWh"),
            (0.9994, "999 mWh"),
            (0.9995, "1.00 Wh"),
            (37.52, "37.5 Wh"),
            (999.4, "999 Wh"),
            (999.5, "1.00 kWh"),
            (123_456.0, "123 kWh"),
        ] {
            let (number, unit) = energy_parts(watt_hours);
            assert_eq!(format!("{number} {unit}"), text);
        }
    }

    #[test]
    fn prints_few_mebibytes_with_a_decimal() {
        for (bytes, text) in [
            (1023, "1023 B"),
            (300 * KIB, "300 KiB"),
            (MIB, "1.0 MiB"),
            (1_699_000, "1.6 MiB"),
            (10 * MIB - 1, "10.0 MiB"),
            (10 * MIB, "10 MiB"),
            (GIB - MIB, "1023 MiB"),
            (3 * GIB / 2, "1.50 GiB"),
            (KIB * GIB - GIB, "1023.00 GiB"),
            (KIB * GIB, "1.00 TiB"),
        ] {
            assert_eq!(human_size(bytes), text);
        }
    }

    #[test]
    fn times_have_three_digits() {
        for (seconds, number, unit) in [
            (1.5e-8, "15.0", "ns"),
            (2e-6, "2.00", "µs"),
            (0.0123, "12.3", "ms"),
            (0.9999, "1.00", "s"),
            (1.5, "1.50", "s"),
            (12.34, "12.3", "s"),
            (123.4, "123", "s"),
        ] {
            assert_eq!(time_parts(seconds), (number.to_owned(), unit));
        }
    }

    #[test]
    fn reads_sizes() {
        for (text, bytes) in [
            ("11.69GiB", 12_552_041_923),
            ("2 GiB", 2 * GIB),
            ("800mib", 800 * MIB),
            ("12GB", 12_000_000_000),
            ("1024", 1024),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "-1GiB", "1.2.3GiB", "12 parsecs", "99999999999999TiB", "1e3", "é"] {
            assert!(parse_size(text).is_err(), "{text} was taken");
        }
    }
}
