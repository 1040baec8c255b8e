//! Instructions on registers only.

use crate::{
    math,
    program::{
        Binary, Comparison, Logic, LongBinary, LongUnary, Operation, Order, Register, Shift, Ternary, Type,
        UnaryOperation,
    },
    registers::{ALL, Lanes, PredicateRegisters, Registers, map, mask, zip},
};

/// The register files of a warp.
#[derive(Debug)]
pub struct Files {
    /// Registers of 16 and 32 bits.
    pub words: Registers<u32>,
    /// Registers of 64 bits.
    pub longs: Registers<u64>,
    pub predicates: PredicateRegisters,
}

/// A mask of the lanes that divide by zero.
pub type DividesByZero = u32;

impl Files {
    /// Executes a register-only instruction in the active lanes; `None` for other instructions.
    ///
    /// # Errors
    /// The mask of lanes that divide by zero.
    pub fn execute(&mut self, operation: &Operation, active: u32) -> Option<Result<(), DividesByZero>> {
        match *operation {
            Operation::Unary(kind, d, a) => {
                let values = unary(kind, self.words.get(a));
                self.words.set(d, active, &values, self.words.defined(a));
            }
            Operation::Binary(kind, d, [a, b]) => {
                if matches!(kind, Binary::Divide | Binary::Remainder) {
                    let zero = mask(self.words.get(b), self.words.get(b), |b, _| b == 0) & active;
                    if zero != 0 {
                        return Some(Err(zero));
                    }
                }
                let values = binary(kind, self.words.get(a), self.words.get(b));
                self.words.set(d, active, &values, self.words.defined(a) & self.words.defined(b));
            }
            Operation::Ternary(kind, d, [a, b, c]) => {
                let [x, y, z] = [a, b, c].map(|register| self.words.get(register));
                let values = ternary(kind, x, y, z);
                self.words.set(d, active, &values, self.all_defined(&[a, b, c]));
            }
            Operation::InsertField(d, sources) => {
                let [field, into, position, length] = sources.map(|register| self.words.get(register));
                let mut values = [0; 32];
                for (lane, value) in values.iter_mut().enumerate() {
                    *value = math::insert_field(field[lane], into[lane], position[lane], length[lane]);
                }
                self.words.set(d, active, &values, self.all_defined(&sources));
            }
            Operation::LongUnary(kind, d, a) => {
                let values = match kind {
                    LongUnary::Move => *self.longs.get(a),
                    LongUnary::Not => map(self.longs.get(a), |a: u64| !a),
                };
                self.longs.set(d, active, &values, self.longs.defined(a));
            }
            Operation::LongBinary(kind, d, [a, b]) => {
                if kind == LongBinary::Divide {
                    let zero = mask(self.longs.get(b), self.longs.get(b), |b, _| b == 0) & active;
                    if zero != 0 {
                        return Some(Err(zero));
                    }
                }
                let values = long_binary(kind, self.longs.get(a), self.longs.get(b));
                self.longs.set(d, active, &values, self.longs.defined(a) & self.longs.defined(b));
            }
            Operation::LongShift(kind, d, a, by) => {
                let values = zip(self.longs.get(a), self.words.get(by), |a: u64, by| match kind {
                    Shift::Left => a.checked_shl(by).unwrap_or(0),
                    Shift::Right => a.checked_shr(by).unwrap_or(0),
                });
                self.longs.set(d, active, &values, self.longs.defined(a) & self.words.defined(by));
            }
            Operation::Widen(d, a) => {
                let values = map(self.words.get(a), u64::from);
                self.longs.set(d, active, &values, self.words.defined(a));
            }
            Operation::Narrow(d, a) => {
                let values = map(self.longs.get(a), low);
                self.words.set(d, active, &values, self.longs.defined(a));
            }
            Operation::MultiplyWide(d, [a, b]) => {
                let values = zip(self.words.get(a), self.words.get(b), |a, b| u64::from(a) * u64::from(b));
                self.longs.set(d, active, &values, self.words.defined(a) & self.words.defined(b));
            }
            _ => return self.execute_predicates(operation, active).map(Ok),
        }
        Some(Ok(()))
    }

    fn execute_predicates(&mut self, operation: &Operation, active: u32) -> Option<()> {
        match *operation {
            Operation::Compare(kind, comparison, d, [a, b]) => {
                let values = compare(kind, comparison, self.words.get(a), self.words.get(b));
                self.predicates.set(d, active, values, self.words.defined(a) & self.words.defined(b));
            }
            Operation::LongCompare(kind, comparison, d, [a, b]) => {
                let (x, y) = (self.longs.get(a), self.longs.get(b));
                let values = match kind {
                    Type::Signed => ordered(comparison.of, x, y, u64::cast_signed),
                    _ => ordered(comparison.of, x, y, |x| x),
                };
                self.predicates.set(d, active, values, self.longs.defined(a) & self.longs.defined(b));
            }
            Operation::Select(d, [a, b], p) => {
                let choice = self.predicates.get(p);
                let values = chosen(choice, self.words.get(a), self.words.get(b));
                let defined = (choice & self.words.defined(a)) | (!choice & self.words.defined(b));
                self.words.set(d, active, &values, defined & self.predicates.defined(p));
            }
            Operation::LongSelect(d, [a, b], p) => {
                let choice = self.predicates.get(p);
                let values = chosen(choice, self.longs.get(a), self.longs.get(b));
                let defined = (choice & self.longs.defined(a)) | (!choice & self.longs.defined(b));
                self.longs.set(d, active, &values, defined & self.predicates.defined(p));
            }
            Operation::Logic(kind, d, [a, b]) => {
                let [x, y] = [a, b].map(|register| self.predicates.get(register));
                let [x_defined, y_defined] = [a, b].map(|register| self.predicates.defined(register));
                // If one operand decides the result, the other may be undefined: compilers evaluate both sides of `&&`
                // this way.
                let (values, decided) = match kind {
                    Logic::And => (x & y, (x_defined & !x) | (y_defined & !y)),
                    Logic::Or => (x | y, (x_defined & x) | (y_defined & y)),
                    Logic::Xor => (x ^ y, 0),
                };
                let values = match kind {
                    Logic::And => values & !decided,
                    Logic::Or | Logic::Xor => values | decided,
                };
                self.predicates.set(d, active, values, (x_defined & y_defined) | decided);
            }
            Operation::LogicNot(d, a) => {
                self.predicates.set(d, active, !self.predicates.get(a), self.predicates.defined(a));
            }
            Operation::LogicMove(d, a) => {
                self.predicates.set(d, active, self.predicates.get(a), self.predicates.defined(a));
            }
            Operation::LogicSet(d, value) => self.predicates.set(d, active, if value { ALL } else { 0 }, ALL),
            _ => return None,
        }
        Some(())
    }

    fn all_defined(&self, registers: &[Register]) -> u32 {
        registers.iter().fold(ALL, |defined, register| defined & self.words.defined(*register))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn low(value: u64) -> u32 {
    value as u32
}

fn float(of: impl Fn(f32) -> f32) -> impl Fn(u32) -> u32 {
    move |a| of(f32::from_bits(a)).to_bits()
}

fn floats(of: impl Fn(f32, f32) -> f32) -> impl Fn(u32, u32) -> u32 {
    move |a, b| of(f32::from_bits(a), f32::from_bits(b)).to_bits()
}

fn unary(kind: UnaryOperation, a: &Lanes<u32>) -> Lanes<u32> {
    match kind {
        UnaryOperation::Move => *a,
        UnaryOperation::Not => map(a, |a: u32| !a),
        UnaryOperation::Not16 => map(a, |a: u32| !a & 0xffff),
        UnaryOperation::Negate => map(a, u32::wrapping_neg),
        UnaryOperation::Low16 => map(a, |a| a & 0xffff),
        UnaryOperation::FloatOfUnsigned => map(a, |a| (a as f32).to_bits()),
        UnaryOperation::NegateFloat => map(a, |a| a ^ 0x8000_0000),
        UnaryOperation::AbsoluteFloat => map(a, |a| a & 0x7fff_ffff),
        UnaryOperation::ReciprocalFloat => map(a, float(|a| 1.0 / a)),
        UnaryOperation::RootFloat => map(a, float(f32::sqrt)),
        UnaryOperation::InverseRootApproximate => map(a, math::inverse_root),
        UnaryOperation::PowerOfTwoApproximate => map(a, math::power_of_two),
        UnaryOperation::LogarithmApproximate => map(a, math::logarithm),
        UnaryOperation::ReciprocalApproximate => map(a, math::reciprocal),
    }
}

fn binary(kind: Binary, a: &Lanes<u32>, b: &Lanes<u32>) -> Lanes<u32> {
    match kind {
        Binary::Add => zip(a, b, u32::wrapping_add),
        Binary::Subtract => zip(a, b, u32::wrapping_sub),
        Binary::MultiplyLow => zip(a, b, u32::wrapping_mul),
        Binary::Add16 => zip(a, b, |a: u32, b| a.wrapping_add(b) & 0xffff),
        Binary::Subtract16 => zip(a, b, |a: u32, b| a.wrapping_sub(b) & 0xffff),
        Binary::MultiplyLow16 => zip(a, b, |a: u32, b| a.wrapping_mul(b) & 0xffff),
        Binary::MultiplyWide16 => zip(a, b, |a, b| (a & 0xffff) * (b & 0xffff)),
        // The divisor of an inactive lane may be 0.
        Binary::Divide => zip(a, b, |a: u32, b| a.checked_div(b).unwrap_or(0)),
        Binary::Remainder => zip(a, b, |a: u32, b| a.checked_rem(b).unwrap_or(0)),
        Binary::Minimum => zip(a, b, u32::min),
        Binary::And => zip(a, b, |a, b| a & b),
        Binary::Or => zip(a, b, |a, b| a | b),
        Binary::Xor => zip(a, b, |a, b| a ^ b),
        // Shift amounts beyond the last bit are clamped, which gives 0.
        Binary::ShiftLeft => zip(a, b, |a: u32, b| a.checked_shl(b).unwrap_or(0)),
        Binary::ShiftLeft16 => zip(a, b, |a: u32, b| a.checked_shl(b).unwrap_or(0) & 0xffff),
        Binary::ShiftRight => zip(a, b, |a: u32, b| a.checked_shr(b).unwrap_or(0)),
        Binary::AddFloat => zip(a, b, floats(|a, b| a + b)),
        Binary::SubtractFloat => zip(a, b, floats(|a, b| a - b)),
        Binary::MultiplyFloat => zip(a, b, floats(|a, b| a * b)),
        Binary::DivideFloat => zip(a, b, floats(|a, b| a / b)),
        Binary::MaximumFloat => zip(a, b, |a, b| math::maximum(f32::from_bits(a), f32::from_bits(b))),
        Binary::MinimumFloat => zip(a, b, |a, b| math::minimum(f32::from_bits(a), f32::from_bits(b))),
        // The first operand becomes the upper half.
        Binary::PackBfloat16 => zip(a, b, |a, b| math::bfloat16(a) << 16 | math::bfloat16(b)),
    }
}

fn ternary(kind: Ternary, a: &Lanes<u32>, b: &Lanes<u32>, c: &Lanes<u32>) -> Lanes<u32> {
    let mut out = [0; 32];
    for (lane, value) in out.iter_mut().enumerate() {
        let (a, b, c) = (a[lane], b[lane], c[lane]);
        *value = match kind {
            Ternary::MultiplyAdd => a.wrapping_mul(b).wrapping_add(c),
            Ternary::MultiplyAddFloat => {
                f32::mul_add(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c)).to_bits()
            }
            // The upper half of b:a, shifted by the amount's lower five bits.
            Ternary::FunnelShiftLeft => low(((u64::from(b) << 32 | u64::from(a)) << (c & 31)) >> 32),
        };
    }
    out
}

fn long_binary(kind: LongBinary, a: &Lanes<u64>, b: &Lanes<u64>) -> Lanes<u64> {
    match kind {
        LongBinary::Add => zip(a, b, u64::wrapping_add),
        LongBinary::Subtract => zip(a, b, u64::wrapping_sub),
        LongBinary::MultiplyLow => zip(a, b, u64::wrapping_mul),
        LongBinary::Divide => zip(a, b, |a: u64, b| a.checked_div(b).unwrap_or(0)),
        LongBinary::And => zip(a, b, |a, b| a & b),
        LongBinary::Or => zip(a, b, |a, b| a | b),
        LongBinary::Xor => zip(a, b, |a, b| a ^ b),
    }
}

fn ordered<T: Copy, U: PartialOrd>(of: Order, a: &Lanes<T>, b: &Lanes<T>, read: impl Fn(T) -> U) -> u32 {
    match of {
        Order::Equal => mask(a, b, |a, b| read(a) == read(b)),
        Order::NotEqual => mask(a, b, |a, b| read(a) != read(b)),
        Order::Less => mask(a, b, |a, b| read(a) < read(b)),
        Order::LessOrEqual => mask(a, b, |a, b| read(a) <= read(b)),
        Order::Greater => mask(a, b, |a, b| read(a) > read(b)),
        Order::GreaterOrEqual => mask(a, b, |a, b| read(a) >= read(b)),
    }
}

fn compare(kind: Type, comparison: Comparison, a: &Lanes<u32>, b: &Lanes<u32>) -> u32 {
    match kind {
        Type::Unsigned => ordered(comparison.of, a, b, |a| a),
        Type::Signed => ordered(comparison.of, a, b, u32::cast_signed),
        Type::Float => {
            let unordered = mask(a, b, |a, b| f32::from_bits(a).is_nan() || f32::from_bits(b).is_nan());
            let values = ordered(comparison.of, a, b, f32::from_bits);
            // Rust's `!=` is true for NaN, unlike `ne`.
            if comparison.or_unordered { values | unordered } else { values & !unordered }
        }
    }
}

fn chosen<T: Copy + Default>(choice: u32, a: &Lanes<T>, b: &Lanes<T>) -> Lanes<T> {
    let mut out = [T::default(); 32];
    for (lane, value) in out.iter_mut().enumerate() {
        *value = if choice >> lane & 1 == 1 { a[lane] } else { b[lane] };
    }
    out
}
