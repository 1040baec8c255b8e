//! A kernel in the form that is executed: registers are numbers, and immediates are registers that nothing writes.

/// The number of a register in its file: that of 32 bits (which has those of 16, too), of 64 bits, or of predicates.
pub type Register = u16;

/// One kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Threads of a block at most, where the file says so.
    pub threads_max: Option<u32>,
    /// Its instructions.
    pub instructions: Vec<Instruction>,
    /// Registers of 16 and 32 bits that instructions write; constants and special registers follow them.
    pub n_words: u16,
    /// Of 64 bits, likewise.
    pub n_longs: u16,
    /// Predicates.
    pub n_predicates: u16,
    /// Immediates of 16 and 32 bits: the first of them is register `n_words`.
    pub words: Vec<Word>,
    /// Immediates of 64 bits: the first of them is register `n_longs`.
    pub longs: Vec<u64>,
}

/// A parameter in the kernel's parameter memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its size: 4 or 8.
    pub bytes: u32,
    /// Where it begins.
    pub offset: u32,
}

/// What a register holds that nothing writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// An immediate.
    Immediate(u32),
    /// A thread's own or its block's number, or a size.
    Special(Special, usize),
}

/// A special register; its axis stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// `%tid`.
    Thread,
    /// `%ntid`.
    Threads,
    /// `%ctaid`.
    Block,
    /// `%nctaid`.
    Blocks,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Its line in the file, counted from 1.
    pub line: u32,
    /// The predicate that a lane needs to execute it.
    pub guard: Option<Guard>,
    /// What it does.
    pub operation: Operation,
}

/// `@%p` or `@!%p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The predicate.
    pub predicate: Register,
    /// Whether it has to be false.
    pub negated: bool,
}

/// What an instruction does. Results stand first.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A word of a word.
    Unary(Unary, Register, Register),
    /// A word of two.
    Binary(Binary, Register, [Register; 2]),
    /// A word of three.
    Ternary(Ternary, Register, [Register; 3]),
    /// `bfi.b32`: the field, what it goes into, its first bit, its length.
    InsertField(Register, [Register; 4]),
    /// A long of a long.
    LongUnary(LongUnary, Register, Register),
    /// A long of two.
    LongBinary(LongBinary, Register, [Register; 2]),
    /// A long shifted by a word.
    LongShift(Shift, Register, Register, Register),
    /// A long of a word, with zeros before it.
    Widen(Register, Register),
    /// The lower half of a long.
    Narrow(Register, Register),
    /// The whole product of two words.
    MultiplyWide(Register, [Register; 2]),
    /// A predicate of two words.
    Compare(Type, Comparison, Register, [Register; 2]),
    /// A predicate of two longs.
    LongCompare(Type, Comparison, Register, [Register; 2]),
    /// The first word where the predicate is true, else the second.
    Select(Register, [Register; 2], Register),
    /// Of longs, likewise.
    LongSelect(Register, [Register; 2], Register),
    /// A predicate of two.
    Logic(Logic, Register, [Register; 2]),
    /// `not.pred`.
    LogicNot(Register, Register),
    /// `mov.pred` of a predicate.
    LogicMove(Register, Register),
    /// `mov.pred` of an immediate.
    LogicSet(Register, bool),
    /// A parameter of 4 bytes, by its offset.
    Parameter(Register, u32),
    /// A parameter of 8 bytes, by its offset.
    LongParameter(Register, u32),
    /// A load of one, two or four words, or of one long.
    Load {
        /// From which memory.
        space: Memory,
        /// Whether it is of a long.
        long: bool,
        /// How many.
        n: usize,
        /// Where they go.
        to: [Register; 4],
        /// From where.
        address: Address,
    },
    /// A store of one, two or four words.
    Store {
        /// To which memory.
        space: Memory,
        /// How many.
        n: usize,
        /// What.
        from: [Register; 4],
        /// To where.
        address: Address,
    },
    /// A jump to an instruction.
    Branch(usize),
    /// The thread's end.
    Return,
    /// `bar.sync 0`.
    BlockBarrier,
    /// `bar.warp.sync` of all lanes.
    WarpBarrier,
    /// `shfl.sync.bfly`: the value, whether its lane is in range, then value, lane mask, clamp and member mask.
    Shuffle(Register, Option<Register>, [Register; 4]),
    /// Four matrices of 8 x 8, or their transposes.
    LoadMatrices {
        /// Whether they are transposed.
        transposed: bool,
        /// Where they go.
        to: [Register; 4],
        /// Where each lane's row is.
        address: Address,
    },
    /// `mma.sync` of 16 x 8 x 16 with bfloat16 operands and float sums.
    MultiplyMatrices {
        /// The sums.
        d: [Register; 4],
        /// The first operand.
        a: [Register; 4],
        /// The second.
        b: [Register; 2],
        /// What is added.
        c: [Register; 4],
    },
    /// `cp.async` of 16 bytes: to shared memory, from global memory, bytes of the source.
    Copy(Address, Address, Register),
    /// `cp.async.commit_group`.
    Commit,
    /// `cp.async.wait_group`.
    Wait(u32),
}

/// A base register and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The base.
    pub base: Base,
    /// Bytes that are added.
    pub offset: i64,
}

/// An address' register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Of 32 bits.
    Word(Register),
    /// Of 64 bits.
    Long(Register),
}

/// A state space as an instruction names it. Addresses without one are global here: no kernel takes another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// `.global`, or none.
    Global,
    /// `.shared`.
    Shared,
}

/// Operations of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
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

/// Operations of two words.
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

/// Operations of three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ternary {
    MultiplyAdd,
    MultiplyAddFloat,
    FunnelShiftLeft,
}

/// Operations of a long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongUnary {
    Move,
    Not,
}

/// Operations of two longs.
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

/// How a comparison reads its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Unsigned,
    Signed,
    Float,
}

/// A comparison. Those of floats with `or_unordered` are also true of NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Which order is true.
    pub of: Order,
    /// `equ`, `neu` and the like.
    pub or_unordered: bool,
}

/// What a comparison asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Operations of two predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logic {
    And,
    Or,
    Xor,
}
