//! The executable form of a kernel: registers are numbers, and immediates are constant registers.

/// The number of a register in its file: 16 and 32 bits together, 64 bits, or predicates.
pub type Register = u16;

/// An executable kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// The kernel's name.
    pub name: String,
    /// The parameters, in order.
    pub parameters: Vec<Parameter>,
    /// The maximum number of threads per block, if the file contains it.
    pub threads_max: Option<u32>,
    /// The instructions, in order.
    pub instructions: Vec<Instruction>,
    /// The number of registers of 16 and 32 bits that instructions write; constants and special registers follow.
    pub n_words: u16,
    /// The number of registers of 64 bits that instructions write; constants follow.
    pub n_longs: u16,
    /// The number of predicate registers.
    pub n_predicates: u16,
    /// Constants of 16 and 32 bits; the first is register `n_words`.
    pub words: Vec<Word>,
    /// Constants of 64 bits; the first is register `n_longs`.
    pub longs: Vec<u64>,
}

/// A parameter in the kernel's parameter memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The parameter's name.
    pub name: String,
    /// The size in bytes: 4 or 8.
    pub bytes: u32,
    /// The byte offset in parameter memory.
    pub offset: u32,
}

/// The contents of a read-only register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// An immediate operand.
    Immediate(u32),
    /// A special register: a thread's or block's index, or a size, along an axis.
    Special(Special, usize),
}

/// A special register, without its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// `%tid`, the thread's index in the block.
    Thread,
    /// `%ntid`, the block's size in threads.
    Threads,
    /// `%ctaid`, the block's index in the grid.
    Block,
    /// `%nctaid`, the grid's size in blocks.
    Blocks,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// The line in the file, counted from 1.
    pub line: u32,
    /// The guard, which a lane must pass to execute the instruction.
    pub guard: Option<Guard>,
    pub operation: Operation,
}

/// A guard: `@%p` or `@!%p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    pub predicate: Register,
    /// Whether the predicate must be false.
    pub negated: bool,
}

/// The operation of an instruction. Results come before sources.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A word from a word.
    Unary(UnaryOperation, Register, Register),
    /// A word from two words.
    Binary(Binary, Register, [Register; 2]),
    /// A word from three words.
    Ternary(Ternary, Register, [Register; 3]),
    /// `bfi.b32`: the field, the target word, the first bit, and the length.
    InsertField(Register, [Register; 4]),
    /// A 64-bit long from a long.
    LongUnary(LongUnary, Register, Register),
    /// A long from two longs.
    LongBinary(LongBinary, Register, [Register; 2]),
    /// A long shifted by a word.
    LongShift(Shift, Register, Register, Register),
    /// A long from a word, zero-extended.
    Widen(Register, Register),
    /// The lower half of a long.
    Narrow(Register, Register),
    /// The full product of two words, as a long.
    MultiplyWide(Register, [Register; 2]),
    /// A predicate from a comparison of two words.
    Compare(Type, Comparison, Register, [Register; 2]),
    /// A predicate from a comparison of two longs.
    LongCompare(Type, Comparison, Register, [Register; 2]),
    /// The first word if the predicate is true, else the second.
    Select(Register, [Register; 2], Register),
    /// The first long if the predicate is true, else the second.
    LongSelect(Register, [Register; 2], Register),
    /// A predicate from two predicates.
    Logic(Logic, Register, [Register; 2]),
    /// `not.pred`.
    LogicNot(Register, Register),
    /// `mov.pred` of a predicate.
    LogicMove(Register, Register),
    /// `mov.pred` of an immediate.
    LogicSet(Register, bool),
    /// A 4-byte parameter, by its offset.
    Parameter(Register, u32),
    /// An 8-byte parameter, by its offset.
    LongParameter(Register, u32),
    /// A load of one, two or four words, or of one long.
    Load {
        /// The source memory space.
        space: Memory,
        /// Whether a long is loaded.
        long: bool,
        /// The number of words.
        n: usize,
        /// The destination registers.
        to: [Register; 4],
        /// The source address.
        address: Address,
    },
    /// A store of one, two or four words.
    Store {
        /// The destination memory space.
        space: Memory,
        /// The number of words.
        n: usize,
        /// The source registers.
        from: [Register; 4],
        /// The destination address.
        address: Address,
    },
    /// A jump to an instruction, by its index.
    Branch(usize),
    /// A return, which ends the thread.
    Return,
    /// `bar.sync 0`.
    BlockBarrier,
    /// `bar.warp.sync` of all lanes.
    WarpBarrier,
    /// `shfl.sync.bfly`: the result, the predicate for lanes in range, then value, lane mask, clamp and member mask.
    Shuffle(Register, Option<Register>, [Register; 4]),
    /// `ldmatrix` of four 8 x 8 matrices or their transposes.
    LoadMatrices {
        /// Whether the matrices are transposed.
        transposed: bool,
        /// The destination registers.
        to: [Register; 4],
        /// The address of each lane's row.
        address: Address,
    },
    /// `mma.sync` of 16 x 8 x 16 with bfloat16 operands and float sums.
    MultiplyMatrices {
        /// The sums, as the result.
        d: [Register; 4],
        /// The first operand.
        a: [Register; 4],
        /// The second operand.
        b: [Register; 2],
        /// The addend.
        c: [Register; 4],
    },
    /// `cp.async` of 16 bytes: the destination in shared memory, the source in global memory, and the source's size.
    Copy(Address, Address, Register),
    /// `cp.async.commit_group`.
    Commit,
    /// `cp.async.wait_group`.
    Wait(u32),
}

/// An address: a base register and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The base register.
    pub base: Base,
    /// The offset in bytes.
    pub offset: i64,
}

/// The base register of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A register of 32 bits.
    Word(Register),
    /// A register of 64 bits.
    Long(Register),
}

/// A memory space. Generic addresses are global here, as no kernel uses others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// `.global`, or no space.
    Global,
    Shared,
}

/// Operations with one word operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOperation {
    Move,
    Not,
    Not16,
    Negate,
    Low16,
    FloatOfUnsigned,
    NegateFloat,
    AbsoluteFloat,
    ReciprocalFloat,
    RootFloat,
    InverseRootApproximate,
    PowerOfTwoApproximate,
    LogarithmApproximate,
    ReciprocalApproximate,
}

/// Operations with two word operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Subtract,
    MultiplyLow,
    Add16,
    Subtract16,
    MultiplyLow16,
    MultiplyWide16,
    Divide,
    Remainder,
    Minimum,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftLeft16,
    ShiftRight,
    AddFloat,
    SubtractFloat,
    MultiplyFloat,
    DivideFloat,
    MaximumFloat,
    MinimumFloat,
    PackBfloat16,
}

/// Operations with three word operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ternary {
    MultiplyAdd,
    MultiplyAddFloat,
    FunnelShiftLeft,
}

/// Operations with one long operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongUnary {
    Move,
    Not,
}

/// Operations with two long operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongBinary {
    Add,
    Subtract,
    MultiplyLow,
    Divide,
    And,
    Or,
    Xor,
}

/// Shifts of unsigned numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    Left,
    Right,
}

/// The interpretation of a comparison's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Unsigned,
    Signed,
    Float,
}

/// A comparison. With `or_unordered`, a float comparison is also true for NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The order that makes the comparison true.
    pub of: Order,
    /// Whether NaN makes it true, as for `equ` and `neu`.
    pub or_unordered: bool,
}

/// The order relations of comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Operations with two predicate operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    And,
    Or,
    Xor,
}
