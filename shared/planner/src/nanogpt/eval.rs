//! Python's operators and the built-in functions that configs use, on known values. Never panics; a value that cannot
//! be computed is returned as a reason.

use std::cmp::Ordering;

use super::literal::MAX_VALUE_BYTES;
use super::problem::Severity;
use super::reason::{EvaluatedValue, Reason, TOO_LARGE, skipped, stops};
use super::value::Value;
use headroom_text::{self as text, decimal};

const ZERO_DIVISION: Reason = stops(text::PYTHON_ZERO_DIVISION);
const TYPES: Reason = stops(text::PYTHON_TYPES);
const COLLECTION: Reason = skipped(text::NO_COLLECTIONS);
const NOT_FOLLOWED: Reason = skipped(text::CALL_NOT_EVALUATED);

/// Largest exponent of a power of floats: beyond it, nearly every power is 0 or infinite.
const MAX_EXPONENT: f64 = 1024.0;

/// Built-in functions that are evaluated.
pub(super) const BUILTINS: [&str; 8] = ["str", "int", "float", "bool", "abs", "max", "min", "round"];

#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(b) => Some(Self::Int(i64::from(*b))),
            Value::Int(i) => Some(Self::Int(*i)),
            Value::Float(f) => Some(Self::Float(*f)),
            _ => None,
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Int(i) => i as f64,
            Self::Float(f) => f,
        }
    }
}

/// Computes `+x`, `-x` or `~x`.
pub(super) fn unary(op: &str, value: &Value) -> EvaluatedValue {
    match (op, Number::of(value).ok_or(wrong_type(value, value))?) {
        ("+", Number::Int(i)) => Ok(Value::Int(i)),
        ("+", Number::Float(f)) => Ok(Value::Float(f)),
        ("-", Number::Int(i)) => i.checked_neg().map(Value::Int).ok_or(skipped(TOO_LARGE)),
        ("-", Number::Float(f)) => Ok(Value::Float(-f)),
        ("~", Number::Int(i)) => Ok(Value::Int(!i)),
        _ => Err(TYPES),
    }
}

/// Computes `left op right` for the arithmetic and bit operators.
pub(super) fn binary(op: &str, left: &Value, right: &Value) -> EvaluatedValue {
    match (op, left, right) {
        ("+", Value::Str(a), Value::Str(b)) => bounded(a.len() + b.len(), || format!("{a}{b}")),
        ("*", Value::Str(s), Value::Int(n)) | ("*", Value::Int(n), Value::Str(s)) => {
            let n = usize::try_from(*n).unwrap_or(0);
            bounded(s.len().saturating_mul(n), || s.repeat(n))
        }
        ("%", Value::Str(_), _) => Err(skipped(text::NO_FORMATTING)),
        ("&", Value::Bool(a), Value::Bool(b)) => Ok(Value::Bool(*a & *b)),
        ("|", Value::Bool(a), Value::Bool(b)) => Ok(Value::Bool(*a | *b)),
        ("^", Value::Bool(a), Value::Bool(b)) => Ok(Value::Bool(*a ^ *b)),
        _ => match (Number::of(left), Number::of(right)) {
            (Some(Number::Int(a)), Some(Number::Int(b))) => int_op(op, a, b),
            (Some(a), Some(b)) => float_op(op, a.float(), b.float()),
            _ => Err(wrong_type(left, right)),
        },
    }
}

fn wrong_type(left: &Value, right: &Value) -> Reason {
    let opaque = matches!(left, Value::Opaque(_)) || matches!(right, Value::Opaque(_));
    if opaque { COLLECTION } else { TYPES }
}

fn bounded(length: usize, make: impl FnOnce() -> String) -> EvaluatedValue {
    if length > MAX_VALUE_BYTES {
        return Err(skipped(text::STRING_TOO_LONG));
    }
    Ok(Value::Str(make()))
}

fn int_op(op: &str, a: i64, b: i64) -> EvaluatedValue {
    let zero_divisor = b == 0 && matches!(op, "/" | "//" | "%");
    if zero_divisor {
        return Err(ZERO_DIVISION);
    }
    // Rust rounds towards zero, Python towards negative infinity.
    let remainder = if b == 0 { 0 } else { a.wrapping_rem(b) };
    let below = i64::from(remainder != 0 && (remainder < 0) != (b < 0));
    let result = match op {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "/" => return Ok(Value::Float(a as f64 / b as f64)),
        "//" => a.checked_div(b).map(|quotient| quotient - below),
        "%" => Some(remainder + below * b),
        "**" => return int_power(a, b),
        "&" => Some(a & b),
        "|" => Some(a | b),
        "^" => Some(a ^ b),
        "<<" | ">>" if b < 0 => return Err(stops(text::PYTHON_SHIFT)),
        "<<" => match u32::try_from(b) {
            _ if a == 0 => Some(0),
            Ok(count) if count < 63 => a.checked_mul(1 << count),
            _ => None,
        },
        ">>" => Some(a >> b.min(63)),
        _ => return Err(TYPES),
    };
    result.map(Value::Int).ok_or(skipped(TOO_LARGE))
}

/// Computes a power by repeated squaring with overflow checks: at most 64 steps for any exponent.
fn int_power(base: i64, exponent: i64) -> EvaluatedValue {
    if exponent < 0 {
        return float_op("**", base as f64, exponent as f64);
    }
    let result = match (base, u32::try_from(exponent)) {
        (0 | 1, _) => Some(if exponent == 0 { 1 } else { base }),
        (-1, _) => Some(if exponent % 2 == 0 { 1 } else { -1 }),
        (_, Ok(small)) => base.checked_pow(small),
        (_, Err(_)) => None,
    };
    result.map(Value::Int).ok_or(skipped(TOO_LARGE))
}

fn float_op(op: &str, a: f64, b: f64) -> EvaluatedValue {
    if b == 0.0 && matches!(op, "/" | "//" | "%") || op == "**" && a == 0.0 && b < 0.0 {
        return Err(ZERO_DIVISION);
    }
    let result = match op {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        "//" => floor_div_rem(a, b).0,
        "%" => floor_div_rem(a, b).1,
        "**" if b == 0.5 && a >= 0.0 => a.sqrt(),
        // Of such a power, Python's last digit depends on its C library, and the code for it takes 1.3 KB of a page.
        "**" if b != b.trunc() || b.abs() > MAX_EXPONENT => return Err(skipped(text::NO_FRACTIONAL_POWER)),
        "**" => {
            #[expect(clippy::cast_possible_truncation, reason = "at most MAX_EXPONENT")]
            let power = a.powi(b as i32);
            if power.is_infinite() && a.is_finite() {
                return Err(stops(text::PYTHON_FLOAT_TOO_LARGE));
            }
            power
        }
        _ => return Err(TYPES),
    };
    Ok(Value::Float(result))
}

/// Computes Python's `divmod` of floats, like CPython's floatobject.c.
fn floor_div_rem(a: f64, b: f64) -> (f64, f64) {
    let mut remainder = a % b;
    let mut quotient = (a - remainder) / b;
    if remainder == 0.0 {
        remainder = 0.0_f64.copysign(b);
    } else if (b < 0.0) != (remainder < 0.0) {
        remainder += b;
        quotient -= 1.0;
    }
    let floored = if quotient == 0.0 {
        0.0_f64.copysign(a / b)
    } else if quotient - quotient.floor() > 0.5 {
        quotient.floor() + 1.0
    } else {
        quotient.floor()
    };
    (floored, remainder)
}

/// Computes `left op right` for the comparisons, including `is`, `is not`, `in` and `not in`.
pub(super) fn compare(op: &str, left: &Value, right: &Value) -> Result<bool, Reason> {
    let order = match (left, right) {
        (Value::Opaque(_), _) | (_, Value::Opaque(_)) => return Err(COLLECTION),
        (Value::Str(a), Value::Str(b)) => match op {
            "in" => return Ok(b.contains(a.as_str())),
            "not in" => return Ok(!b.contains(a.as_str())),
            _ => Some(a.cmp(b)),
        },
        _ => match (Number::of(left), Number::of(right)) {
            (Some(Number::Int(a)), Some(Number::Int(b))) => Some(a.cmp(&b)),
            (Some(a), Some(b)) => a.float().partial_cmp(&b.float()),
            _ if matches!(op, "<" | ">" | "<=" | ">=") => return Err(TYPES),
            _ if left == right => Some(Ordering::Equal),
            _ => None,
        },
    };
    let singleton = |v: &Value| matches!(v, Value::None | Value::Bool(_));
    match op {
        "==" => Ok(order == Some(Ordering::Equal)),
        "!=" => Ok(order != Some(Ordering::Equal)),
        "<" => Ok(order == Some(Ordering::Less)),
        ">" => Ok(order == Some(Ordering::Greater)),
        "<=" => Ok(matches!(order, Some(Ordering::Less | Ordering::Equal))),
        ">=" => Ok(matches!(order, Some(Ordering::Greater | Ordering::Equal))),
        "is" if singleton(left) || singleton(right) => Ok(left == right),
        "is not" if singleton(left) || singleton(right) => Ok(left != right),
        "is" | "is not" => Err(skipped(text::NO_IS)),
        _ => Err(TYPES),
    }
}

/// Calls one of [`BUILTINS`].
pub(super) fn call(name: &str, args: &[Value]) -> EvaluatedValue {
    match (name, args) {
        ("str", [value]) => value.to_python_str().map(Value::Str).ok_or(NOT_FOLLOWED),
        ("bool", [value]) => value.truthy().map(Value::Bool).ok_or(NOT_FOLLOWED),
        ("int", [value]) => to_int(value),
        ("float", [value]) => to_float(value),
        ("abs", [Value::Int(i)]) => i.checked_abs().map(Value::Int).ok_or(skipped(TOO_LARGE)),
        ("abs", [Value::Float(f)]) => Ok(Value::Float(f.abs())),
        ("round", [Value::Int(i)]) => Ok(Value::Int(*i)),
        ("round", [Value::Float(f)]) => float_to_int(f.round_ties_even()),
        ("max", [_, _, ..]) => extreme(">", args),
        ("min", [_, _, ..]) => extreme("<", args),
        _ => Err(NOT_FOLLOWED),
    }
}

fn extreme(op: &str, args: &[Value]) -> EvaluatedValue {
    let mut best = &args[0];
    for value in &args[1..] {
        if compare(op, value, best)? {
            best = value;
        }
    }
    Ok(best.clone())
}

fn to_int(value: &Value) -> EvaluatedValue {
    match value {
        Value::Float(f) => float_to_int(f.trunc()),
        Value::Str(s) => {
            // Like a literal, but a sign, surrounding white space and leading zeros are allowed.
            let text = s.trim();
            let (negative, digits) = match text.strip_prefix('-') {
                Some(rest) => (true, rest),
                None => (false, text.strip_prefix('+').unwrap_or(text)),
            };
            let significant = digits.trim_start_matches('0');
            let parsed = match significant {
                "" if !digits.is_empty() => Ok(Value::Int(0)),
                _ => super::literal::number(significant),
            };
            match parsed {
                Ok(Value::Int(i)) => Ok(Value::Int(if negative { -i } else { i })),
                Err(reason) if reason.severity < Severity::Error => Err(reason),
                _ => Err(stops(text::PYTHON_INT)),
            }
        }
        other => match Number::of(other) {
            Some(Number::Int(i)) => Ok(Value::Int(i)),
            _ => Err(wrong_type(other, other)),
        },
    }
}

fn float_to_int(whole: f64) -> EvaluatedValue {
    if !whole.is_finite() {
        return Err(stops(text::PYTHON_NOT_FINITE));
    }
    // 2^63 is exact as a float; `as` would saturate larger values.
    if whole.abs() >= 9_223_372_036_854_775_808.0 {
        return Err(skipped(TOO_LARGE));
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole and within i64, checked above")]
    Ok(Value::Int(whole as i64))
}

fn to_float(value: &Value) -> EvaluatedValue {
    if let Value::Str(s) = value {
        let text = s.trim();
        return decimal::parse(text).map(Value::Float).ok_or(stops(text::PYTHON_FLOAT));
    }
    Number::of(value).map(|n| Value::Float(n.float())).ok_or(wrong_type(value, value))
}
