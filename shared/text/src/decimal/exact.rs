//! Decimal digits and floats, exactly: whole numbers of any size, of which there are few and small ones.
//!
//! A float is a whole number over another. Reading divides until more bits are known than a float has; writing divides
//! for digits. Nothing here is a table, and what is slow about it is a microsecond.

use std::cmp::Ordering;

/// More significant digits decide nothing but whether there is anything beyond: a half-way case has up to 767.
const DIGITS_MAX: usize = 800;
/// Beyond these every number is infinite, or 0.
const EXPONENT_MAX: i64 = 310;
const EXPONENT_MIN: i64 = -326;
/// Digits that tell any two floats apart.
const DIGITS_APART: usize = 17;
/// The exponent of a float's last bit, at least.
const LAST_BIT_MIN: i64 = -1074;
/// Bits of a quotient: three at least beyond those of a float.
const QUOTIENT_BITS: i64 = 56;

/// A whole number, the least significant 32 bits first, without zeros at its end.
#[derive(Clone, PartialEq, Eq)]
struct WholeNumber(Vec<u32>);

impl WholeNumber {
    fn of(number: u64) -> Self {
        let mut whole = Self(vec![]);
        for part in [number >> 32, number & u64::from(u32::MAX)] {
            whole.shift(32);
            whole.times_plus(1, part);
        }
        whole
    }

    /// Times `factor`, plus `more`; both below 2^32.
    #[expect(clippy::cast_possible_truncation, reason = "the upper half is carried")]
    fn times_plus(&mut self, factor: u64, more: u64) {
        let mut carry = more;
        for part in &mut self.0 {
            carry += u64::from(*part) * factor;
            *part = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Times 10 to the `n`.
    fn times_tens(&mut self, n: i64) {
        for _ in 0..n {
            self.times_plus(10, 0);
        }
    }

    /// Times 2 to the `n`.
    fn shift(&mut self, n: i64) {
        let n = usize::try_from(n).unwrap_or(0);
        self.times_plus(1 << (n % 32), 0);
        if !self.0.is_empty() {
            self.0.splice(0..0, std::iter::repeat_n(0, n / 32));
        }
    }

    /// Takes the other away where it is not larger, and whether it did.
    fn take(&mut self, other: &Self) -> bool {
        let by_length = self.0.len().cmp(&other.0.len());
        if by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())) == Ordering::Less {
            return false;
        }
        let mut borrowed = false;
        for (index, part) in self.0.iter_mut().enumerate() {
            let of_other = other.0.get(index).copied().unwrap_or(0);
            let (less, first) = part.overflowing_sub(of_other);
            let (less, second) = less.overflowing_sub(u32::from(borrowed));
            (*part, borrowed) = (less, first || second);
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        true
    }

    fn bits(&self) -> i64 {
        self.0.last().map_or(0, |last| self.0.len() as i64 * 32 - i64::from(last.leading_zeros()))
    }
}

/// The float nearest to digits times 10 to the `exponent`, ties to even. Digits are ASCII.
pub(super) fn nearest(digits: impl Iterator<Item = u8>, exponent: i64) -> f64 {
    let (mut over, mut exponent, mut n_digits, mut is_more) = (WholeNumber(vec![]), exponent, 0, false);
    for digit in digits.map(|digit| digit - b'0') {
        if n_digits < DIGITS_MAX {
            over.times_plus(10, u64::from(digit));
            n_digits += usize::from(!over.0.is_empty());
        } else {
            exponent = exponent.saturating_add(1);
            is_more |= digit > 0;
        }
    }
    if is_more {
        // Below every digit that counts.
        over.times_plus(10, 1);
        exponent = exponent.saturating_sub(1);
    }
    let first = exponent.saturating_add(n_digits as i64);
    if over.0.is_empty() || first < EXPONENT_MIN {
        return 0.0;
    }
    if first > EXPONENT_MAX {
        return f64::INFINITY;
    }
    let mut under = WholeNumber::of(1);
    over.times_tens(exponent);
    under.times_tens(-exponent);
    // The quotient, times 2 to the `scale`, has as many bits as are wanted, or one less; fewer where a float ends before.
    let scale = (QUOTIENT_BITS - 1 - over.bits() + under.bits()).min(2 - LAST_BIT_MIN);
    over.shift(scale);
    under.shift(-scale);
    under.shift(QUOTIENT_BITS);
    let mut quotient = 0_u64;
    for _ in 0..=QUOTIENT_BITS {
        quotient = quotient * 2 + u64::from(over.take(&under));
        over.shift(1);
    }
    // Whatever is left is less than the last bit, and breaks a tie.
    quotient |= u64::from(!over.0.is_empty());
    let n_bits = i64::from(u64::BITS - quotient.leading_zeros());
    let dropped = (n_bits - 53).max(LAST_BIT_MIN + scale);
    let half = 1 << (dropped - 1);
    let is_odd = quotient >> dropped & 1;
    let kept = (quotient + half - 1 + is_odd) >> dropped;
    // A carry goes on into the exponent, and at last to infinity.
    let count = u64::try_from(dropped - scale - LAST_BIT_MIN).unwrap_or(0);
    f64::from_bits(((count << 52) + kept).min(f64::INFINITY.to_bits()))
}

/// The fewest digits, as a number, that read back as a float above 0, and the exponent of 10 that they are times.
pub(super) fn shortest(value: f64) -> (u64, i64) {
    let bits = value.to_bits();
    let (count, fraction) = (bits >> 52, bits & ((1 << 52) - 1));
    let last_bit = LAST_BIT_MIN + i64::try_from(count.max(1) - 1).unwrap_or(0);
    let mut over = WholeNumber::of(if count == 0 { fraction } else { fraction | 1 << 52 });
    let mut under = WholeNumber::of(1);
    over.shift(last_bit);
    under.shift(-last_bit);
    // So that the quotient has one digit before its point.
    let mut exponent = 0;
    while over.clone().take(&under) {
        under.times_plus(10, 0);
        exponent += 1;
    }
    while !over.clone().take(&under) {
        over.times_plus(10, 0);
        exponent -= 1;
    }
    let mut digits = [0_u64; DIGITS_APART + 1];
    for digit in &mut digits {
        while over.take(&under) {
            *digit += 1;
        }
        over.times_plus(10, 0);
    }
    let (mut number, mut found) = (0, (0, 0));
    for n in 1..=DIGITS_APART {
        number = number * 10 + digits[n - 1];
        let half_way = digits[n + 1..].iter().all(|&digit| digit == 0) && over.0.is_empty();
        let is_up = digits[n] > 5 || digits[n] == 5 && (!half_way || number % 2 == 1);
        let rounded = number + u64::from(is_up);
        found = (rounded, exponent + 1 - n as i64);
        if nearest(rounded.to_string().bytes(), found.1) == value {
            break;
        }
    }
    found
}
