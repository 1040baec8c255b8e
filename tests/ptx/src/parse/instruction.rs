//! Table of the supported instructions, by their full opcodes.

use super::{
    names::{Names, Width, immediate},
    operands,
};
use crate::program::{
    Binary, Comparison, Entry, Logic, LongBinary, LongUnary, Memory, Operation, Order, Register, Shift, Ternary, Type,
    UnaryOperation,
};

/// Parses an instruction that is not a branch.
pub fn operation(opcode: &str, text: &str, names: &mut Names, entry: &mut Entry) -> Result<Operation, String> {
    let mut reader = Reader { opcode, operands: operands(text), names, entry };
    let operation = match opcode.split('.').next().unwrap_or_default() {
        "ld" | "st" => reader.access(),
        "setp" => reader.comparison(),
        "cp" => reader.copy(),
        _ => reader.other(),
    }?;
    operation.ok_or_else(|| format!("`{opcode}` is not known"))
}

/// The parser of one instruction.
struct Reader<'a> {
    opcode: &'a str,
    operands: Vec<&'a str>,
    names: &'a mut Names,
    entry: &'a mut Entry,
}

type InstructionReader = Result<Option<Operation>, String>;

use Width::{Long, Predicate, Short, Word};

impl Reader<'_> {
    fn count(&self, n: usize) -> Result<(), String> {
        if self.operands.len() == n {
            return Ok(());
        }
        Err(format!("`{}` has {} operands instead of {n}", self.opcode, self.operands.len()))
    }

    fn result(&self, width: Width) -> Result<Register, String> {
        let name = self.operands.first().ok_or_else(|| format!("`{}` has no operands", self.opcode))?;
        self.names.register(name, width)
    }

    /// The register of operand `number`, where 0 is the result.
    fn source(&mut self, number: usize, width: Width) -> Result<Register, String> {
        self.names.source(self.operands[number], width, self.entry)
    }

    /// The result and the `N` sources of an instruction, which has no other operands.
    fn all<const N: usize>(&mut self, to: Width, from: [Width; N]) -> Result<(Register, [Register; N]), String> {
        self.count(N + 1)?;
        let mut sources = [0; N];
        for (i, width) in from.into_iter().enumerate() {
            sources[i] = self.source(i + 1, width)?;
        }
        Ok((self.result(to)?, sources))
    }

    fn unary(&mut self, kind: UnaryOperation, to: Width, from: Width) -> InstructionReader {
        let (d, [a]) = self.all(to, [from])?;
        Ok(Some(Operation::Unary(kind, d, a)))
    }

    fn binary(&mut self, kind: Binary, to: Width, from: [Width; 2]) -> InstructionReader {
        let (d, sources) = self.all(to, from)?;
        Ok(Some(Operation::Binary(kind, d, sources)))
    }

    fn words(&mut self, kind: Binary) -> InstructionReader {
        self.binary(kind, Word, [Word, Word])
    }

    fn shorts(&mut self, kind: Binary) -> InstructionReader {
        self.binary(kind, Short, [Short, Short])
    }

    fn ternary(&mut self, kind: Ternary) -> InstructionReader {
        let (d, sources) = self.all(Word, [Word, Word, Word])?;
        Ok(Some(Operation::Ternary(kind, d, sources)))
    }

    fn longs(&mut self, kind: LongBinary) -> InstructionReader {
        let (d, sources) = self.all(Long, [Long, Long])?;
        Ok(Some(Operation::LongBinary(kind, d, sources)))
    }

    fn long(&mut self, kind: LongUnary) -> InstructionReader {
        let (d, [a]) = self.all(Long, [Long])?;
        Ok(Some(Operation::LongUnary(kind, d, a)))
    }

    fn long_shift(&mut self, kind: Shift) -> InstructionReader {
        let (d, [a, by]) = self.all(Long, [Long, Word])?;
        Ok(Some(Operation::LongShift(kind, d, a, by)))
    }

    fn widen(&mut self, from: Width) -> InstructionReader {
        let (d, [a]) = self.all(Long, [from])?;
        Ok(Some(Operation::Widen(d, a)))
    }

    fn logic(&mut self, kind: Logic) -> InstructionReader {
        let (d, sources) = self.all(Predicate, [Predicate, Predicate])?;
        Ok(Some(Operation::Logic(kind, d, sources)))
    }

    fn other(&mut self) -> InstructionReader {
        match self.opcode {
            "mov.u32" | "mov.b32" | "mov.f32" => self.unary(UnaryOperation::Move, Word, Word),
            "mov.u16" | "mov.b16" => self.unary(UnaryOperation::Move, Short, Short),
            "mov.u64" | "mov.b64" | "cvta.to.global.u64" => self.long(LongUnary::Move),
            "mov.pred" => self.move_predicate(),
            "cvt.u64.u32" => self.widen(Word),
            "cvt.u64.u16" => self.widen(Short),
            "cvt.u32.u64" => {
                let (d, [a]) = self.all(Word, [Long])?;
                Ok(Some(Operation::Narrow(d, a)))
            }
            "cvt.u32.u16" => self.unary(UnaryOperation::Low16, Word, Short),
            "cvt.u16.u32" => self.unary(UnaryOperation::Low16, Short, Word),
            "cvt.rn.f32.u32" => self.unary(UnaryOperation::FloatOfUnsigned, Word, Word),
            "cvt.rn.bf16x2.f32" => self.words(Binary::PackBfloat16),
            "mul.wide.u32" => {
                let (d, sources) = self.all(Long, [Word, Word])?;
                Ok(Some(Operation::MultiplyWide(d, sources)))
            }
            "mul.wide.u16" => self.binary(Binary::MultiplyWide16, Word, [Short, Short]),
            "mul.lo.s32" | "mul.lo.u32" => self.words(Binary::MultiplyLow),
            "mul.lo.s16" | "mul.lo.u16" => self.shorts(Binary::MultiplyLow16),
            "mul.lo.s64" | "mul.lo.u64" => self.longs(LongBinary::MultiplyLow),
            "mad.lo.s32" | "mad.lo.u32" => self.ternary(Ternary::MultiplyAdd),
            "add.s16" => self.shorts(Binary::Add16),
            "add.s32" => self.words(Binary::Add),
            "add.s64" => self.longs(LongBinary::Add),
            "sub.s16" => self.shorts(Binary::Subtract16),
            "sub.s32" => self.words(Binary::Subtract),
            "sub.s64" => self.longs(LongBinary::Subtract),
            "div.u32" => self.words(Binary::Divide),
            "rem.u32" => self.words(Binary::Remainder),
            "div.u64" => self.longs(LongBinary::Divide),
            "min.u32" => self.words(Binary::Minimum),
            "neg.s32" => self.unary(UnaryOperation::Negate, Word, Word),
            "and.b16" => self.shorts(Binary::And),
            "or.b16" => self.shorts(Binary::Or),
            "not.b16" => self.unary(UnaryOperation::Not16, Short, Short),
            "and.b32" => self.words(Binary::And),
            "or.b32" => self.words(Binary::Or),
            "xor.b32" => self.words(Binary::Xor),
            "not.b32" => self.unary(UnaryOperation::Not, Word, Word),
            "and.b64" => self.longs(LongBinary::And),
            "or.b64" => self.longs(LongBinary::Or),
            "xor.b64" => self.longs(LongBinary::Xor),
            "not.b64" => self.long(LongUnary::Not),
            "and.pred" => self.logic(Logic::And),
            "or.pred" => self.logic(Logic::Or),
            "xor.pred" => self.logic(Logic::Xor),
            "not.pred" => {
                let (d, [a]) = self.all(Predicate, [Predicate])?;
                Ok(Some(Operation::LogicNot(d, a)))
            }
            "shl.b16" => self.binary(Binary::ShiftLeft16, Short, [Short, Word]),
            "shl.b32" => self.words(Binary::ShiftLeft),
            "shr.u32" => self.words(Binary::ShiftRight),
            "shl.b64" => self.long_shift(Shift::Left),
            "shr.u64" => self.long_shift(Shift::Right),
            "shf.l.wrap.b32" => self.ternary(Ternary::FunnelShiftLeft),
            "bfi.b32" => {
                let (d, sources) = self.all(Word, [Word, Word, Word, Word])?;
                Ok(Some(Operation::InsertField(d, sources)))
            }
            "selp.b32" | "selp.u32" | "selp.f32" => {
                let (d, [a, b, p]) = self.all(Word, [Word, Word, Predicate])?;
                Ok(Some(Operation::Select(d, [a, b], p)))
            }
            "selp.b64" => {
                let (d, [a, b, p]) = self.all(Long, [Long, Long, Predicate])?;
                Ok(Some(Operation::LongSelect(d, [a, b], p)))
            }
            "ret" => self.count(0).map(|()| Some(Operation::Return)),
            "bar.sync" if self.operands == ["0"] => Ok(Some(Operation::BlockBarrier)),
            "bar.warp.sync" if self.operands == ["-1"] => Ok(Some(Operation::WarpBarrier)),
            "shfl.sync.bfly.b32" => self.shuffle(),
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16" => self.matrices(false),
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16" => self.matrices(true),
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" => {
                self.count(4)?;
                let (d, a, b, c) = (self.vector(0)?, self.vector(1)?, self.vector(2)?, self.vector(3)?);
                Ok(Some(Operation::MultiplyMatrices { d, a, b, c }))
            }
            _ => self.floats(),
        }
    }

    fn floats(&mut self) -> InstructionReader {
        match self.opcode {
            "add.f32" => self.words(Binary::AddFloat),
            "sub.f32" => self.words(Binary::SubtractFloat),
            "mul.f32" => self.words(Binary::MultiplyFloat),
            "div.rn.f32" => self.words(Binary::DivideFloat),
            "max.f32" => self.words(Binary::MaximumFloat),
            "min.f32" => self.words(Binary::MinimumFloat),
            "fma.rn.f32" => self.ternary(Ternary::MultiplyAddFloat),
            "neg.f32" => self.unary(UnaryOperation::NegateFloat, Word, Word),
            "abs.f32" => self.unary(UnaryOperation::AbsoluteFloat, Word, Word),
            "rcp.rn.f32" => self.unary(UnaryOperation::ReciprocalFloat, Word, Word),
            "sqrt.rn.f32" => self.unary(UnaryOperation::RootFloat, Word, Word),
            "rsqrt.approx.f32" => self.unary(UnaryOperation::InverseRootApproximate, Word, Word),
            "ex2.approx.ftz.f32" => self.unary(UnaryOperation::PowerOfTwoApproximate, Word, Word),
            "lg2.approx.ftz.f32" => self.unary(UnaryOperation::LogarithmApproximate, Word, Word),
            "rcp.approx.ftz.f32" => self.unary(UnaryOperation::ReciprocalApproximate, Word, Word),
            _ => Ok(None),
        }
    }

    fn move_predicate(&mut self) -> InstructionReader {
        self.count(2)?;
        let d = self.result(Predicate)?;
        let from = self.operands[1];
        Ok(Some(if from.starts_with('%') {
            Operation::LogicMove(d, self.names.register(from, Predicate)?)
        } else {
            Operation::LogicSet(d, immediate(from)? != 0)
        }))
    }

    fn comparison(&mut self) -> InstructionReader {
        let words: Vec<&str> = self.opcode.split('.').collect();
        let [_, of, kind] = words[..] else { return Ok(None) };
        let (of, or_unordered) = match of.strip_suffix('u') {
            Some(of) if kind == "f32" => (of, true),
            _ => (of, false),
        };
        let of = match of {
            "eq" => Order::Equal,
            "ne" => Order::NotEqual,
            "lt" => Order::Less,
            "le" => Order::LessOrEqual,
            "gt" => Order::Greater,
            "ge" => Order::GreaterOrEqual,
            _ => return Ok(None),
        };
        let comparison = Comparison { of, or_unordered };
        let (kind, width) = match kind {
            "u32" | "b32" => (Type::Unsigned, Word),
            "s32" => (Type::Signed, Word),
            "f32" => (Type::Float, Word),
            "u64" | "b64" => (Type::Unsigned, Long),
            "s64" => (Type::Signed, Long),
            _ => return Ok(None),
        };
        let (d, sources) = self.all(Predicate, [width, width])?;
        Ok(Some(match width {
            Long => Operation::LongCompare(kind, comparison, d, sources),
            _ => Operation::Compare(kind, comparison, d, sources),
        }))
    }

    /// Parses loads and stores, such as `ld.global.cs.v4.u32`.
    fn access(&mut self) -> InstructionReader {
        let opcode = self.opcode;
        let mut words = opcode.split('.').skip(1).peekable();
        let is_load = opcode.starts_with("ld.");
        if is_load && words.next_if_eq(&"param").is_some() {
            return self.parameter(words.next());
        }
        let space = match words.peek() {
            Some(&"shared") => Memory::Shared,
            _ => Memory::Global,
        };
        let _named = words.next_if(|word| matches!(*word, "global" | "shared"));
        let _cached = words.next_if_eq(&"cs");
        let n = match words.peek() {
            Some(&"v2") => 2,
            Some(&"v4") => 4,
            _ => 1,
        };
        let _vector = words.next_if(|word| matches!(*word, "v2" | "v4"));
        let kind = words.next();
        let long = matches!(kind, Some("u64" | "b64"));
        let known = long && is_load && n == 1 || matches!(kind, Some("u32" | "b32" | "f32"));
        if !known || words.next().is_some() {
            return Ok(None);
        }
        self.count(2)?;
        let (values, address) = if is_load { (0, 1) } else { (1, 0) };
        let address = self.names.address(self.operands[address], self.entry)?;
        let list = list(self.operands[values]);
        if list.len() != n {
            return Err(format!("`{opcode}` has {} registers", list.len()));
        }
        let mut registers = [0; 4];
        for (register, name) in registers.iter_mut().zip(list) {
            let width = if long { Long } else { Word };
            *register = match is_load {
                true => self.names.register(name, width)?,
                false => self.names.source(name, width, self.entry)?,
            };
        }
        Ok(Some(if is_load {
            Operation::Load { space, long, n, to: registers, address }
        } else {
            Operation::Store { space, n, from: registers, address }
        }))
    }

    fn parameter(&mut self, kind: Option<&str>) -> InstructionReader {
        self.count(2)?;
        let name = self.operands[1].strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or_default();
        let found = self.entry.parameters.iter().find(|parameter| parameter.name == name);
        let parameter = found.ok_or_else(|| format!("{name} is not a parameter"))?.clone();
        match (kind, parameter.bytes) {
            (Some("u64" | "b64"), 8) => Ok(Some(Operation::LongParameter(self.result(Long)?, parameter.offset))),
            (Some("u32" | "b32" | "f32"), 4) => Ok(Some(Operation::Parameter(self.result(Word)?, parameter.offset))),
            _ => Err(format!("{name} has {} bytes", parameter.bytes)),
        }
    }

    fn shuffle(&mut self) -> InstructionReader {
        self.count(5)?;
        let (value, in_range) = match self.operands[0].split_once('|') {
            Some((value, in_range)) => (value, Some(self.names.register(in_range, Predicate)?)),
            None => (self.operands[0], None),
        };
        let d = self.names.register(value, Word)?;
        let mut sources = [0; 4];
        for (i, source) in sources.iter_mut().enumerate() {
            *source = self.source(i + 1, Word)?;
        }
        Ok(Some(Operation::Shuffle(d, in_range, sources)))
    }

    fn matrices(&mut self, transposed: bool) -> InstructionReader {
        self.count(2)?;
        let to = self.vector(0)?;
        let address = self.names.address(self.operands[1], self.entry)?;
        Ok(Some(Operation::LoadMatrices { transposed, to, address }))
    }

    /// The registers in an operand's braces.
    fn vector<const N: usize>(&mut self, number: usize) -> Result<[Register; N], String> {
        let names = list(self.operands[number]);
        let registers = names.iter().map(|name| self.names.register(name, Word)).collect::<Result<Vec<_>, _>>()?;
        registers.try_into().map_err(|_| format!("`{}` is not {N} registers", self.operands[number]))
    }

    fn copy(&mut self) -> InstructionReader {
        match self.opcode {
            "cp.async.cg.shared.global" => {
                self.count(4)?;
                if self.operands[2] != "16" {
                    return Err(format!("a copy of {} bytes is not known", self.operands[2]));
                }
                let to = self.names.address(self.operands[0], self.entry)?;
                let from = self.names.address(self.operands[1], self.entry)?;
                Ok(Some(Operation::Copy(to, from, self.source(3, Word)?)))
            }
            "cp.async.commit_group" => self.count(0).map(|()| Some(Operation::Commit)),
            "cp.async.wait_group" => {
                self.count(1)?;
                let groups = u32::try_from(immediate(self.operands[0])?).map_err(|error| error.to_string())?;
                Ok(Some(Operation::Wait(groups)))
            }
            _ => Ok(None),
        }
    }
}

/// Splits `{%r1, %r2}` or `%r1` into names.
fn list(text: &str) -> Vec<&str> {
    let inside = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    inside.split(',').map(str::trim).collect()
}
