//! Table of descriptors: the numbers of cudnn_graph.h, and the type and the count of each attribute.

macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($one:ident = $number:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($one = $number),* }

        impl $name {
            /// Returns the value with this number; `None` if it is not supported here.
            pub fn of(number: i64) -> Option<Self> {
                match number {
                    $($number => Some(Self::$one),)*
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    /// cudnnBackendDescriptorType_t.
    Kind {
        Pointwise = 0, Engine = 2, EngineConfig = 3, Heuristics = 4, Plan = 5, KnobChoice = 7, PointwiseOperation = 13,
        Graph = 15, VariantPack = 16, Tensor = 17, Matmul = 18, MatmulOperation = 19, Reduction = 21,
        ReductionOperation = 22, ReshapeOperation = 31,
    }
}

numbers! {
    /// cudnnBackendAttributeType_t.
    Type {
        Handle = 0, Data = 1, Boolean = 2, Int64 = 3, Float = 4, Double = 5, Pointer = 6, HeurMode = 8,
        Knob = 9, NanPropagation = 10, NumericalNote = 11, PointwiseMode = 14, Descriptor = 15,
        ReductionOperator = 18, BehaviorNote = 19, Int32 = 23,
    }
}

numbers! {
    /// cudnnDataType_t.
    Elements { Float = 0, Int32 = 4, Bfloat16 = 9, Boolean = 11 }
}

numbers! {
    /// cudnnPointwiseMode_t.
    Mode {
        Add = 0, Mul = 1, Div = 6, Sub = 9, Exp = 13, Log = 15, Identity = 21, CmpGe = 303, GenIndex = 501,
        BinarySelect = 601,
    }
}

numbers! {
    /// cudnnReduceTensorOp_t.
    Fold { Add = 0, Max = 3 }
}

impl Type {
    /// Returns the size of one value in the host's memory; enumerations are `int`.
    pub fn bytes(self) -> usize {
        match self {
            Self::Boolean => 1,
            Self::Handle | Self::Int64 | Self::Double | Self::Pointer | Self::Descriptor => 8,
            _ => 4,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeOrigin {
    /// Set by the host before it finalizes the descriptor; required.
    Host,
    /// Set by the host; optional.
    Either,
    /// Set by the library when the descriptor is finalized.
    Library,
}

/// An attribute of a descriptor.
#[derive(Debug)]
pub struct Attribute {
    /// cudnnBackendAttributeName_t.
    pub number: u32,
    /// Its name without the common prefix.
    pub name: &'static str,
    /// The descriptor that has it.
    pub kind: Kind,
    /// The type of its values.
    pub of: Type,
    /// Its largest count of values.
    pub most: usize,
    pub who: AttributeOrigin,
}

pub fn attribute(number: u32) -> Option<&'static Attribute> {
    ATTRIBUTES.iter().find(|attribute| attribute.number == number)
}

/// CUDNN_DIM_MAX.
const DIM: usize = 8;
const ANY: usize = usize::MAX;

macro_rules! attributes {
    ($($name:ident = $number:literal, $kind:ident, $of:ident, $most:expr, $who:ident;)*) => {
        $(
            #[allow(dead_code, reason = "some values are recognised only")]
            pub const $name: u32 = $number;
        )*

        /// All supported attributes.
        pub const ATTRIBUTES: &[Attribute] = &[$(Attribute {
            number: $number,
            name: stringify!($name),
            kind: Kind::$kind,
            of: Type::$of,
            most: $most,
            who: AttributeOrigin::$who,
        }),*];
    };
}

attributes! {
    POINTWISE_MODE = 0, Pointwise, PointwiseMode, 1, Host;
    POINTWISE_MATH_PREC = 1, Pointwise, Data, 1, Host;
    POINTWISE_NAN_PROPAGATION = 2, Pointwise, NanPropagation, 1, Either;
    POINTWISE_AXIS = 9, Pointwise, Int64, 1, Either;
    ENGINEHEUR_MODE = 200, Heuristics, HeurMode, 1, Host;
    ENGINEHEUR_OPERATION_GRAPH = 201, Heuristics, Descriptor, 1, Host;
    ENGINEHEUR_RESULTS = 202, Heuristics, Descriptor, ANY, Library;
    ENGINECFG_ENGINE = 300, EngineConfig, Descriptor, 1, Host;
    ENGINECFG_KNOB_CHOICES = 302, EngineConfig, Descriptor, ANY, Either;
    ENGINECFG_WORKSPACE_SIZE = 303, EngineConfig, Int64, 1, Library;
    ENGINECFG_SHARED_MEMORY_USED = 304, EngineConfig, Int32, 1, Library;
    EXECUTION_PLAN_HANDLE = 400, Plan, Handle, 1, Host;
    EXECUTION_PLAN_ENGINE_CONFIG = 401, Plan, Descriptor, 1, Host;
    EXECUTION_PLAN_WORKSPACE_SIZE = 402, Plan, Int64, 1, Library;
    KNOB_CHOICE_KNOB_TYPE = 600, KnobChoice, Knob, 1, Host;
    KNOB_CHOICE_KNOB_VALUE = 601, KnobChoice, Int64, 1, Host;
    OPERATION_POINTWISE_PW_DESCRIPTOR = 750, PointwiseOperation, Descriptor, 1, Host;
    OPERATION_POINTWISE_XDESC = 751, PointwiseOperation, Descriptor, 1, Host;
    OPERATION_POINTWISE_BDESC = 752, PointwiseOperation, Descriptor, 1, Either;
    OPERATION_POINTWISE_YDESC = 753, PointwiseOperation, Descriptor, 1, Host;
    OPERATION_POINTWISE_ALPHA1 = 754, PointwiseOperation, Float, 1, Either;
    OPERATION_POINTWISE_ALPHA2 = 755, PointwiseOperation, Float, 1, Either;
    OPERATION_POINTWISE_TDESC = 758, PointwiseOperation, Descriptor, 1, Either;
    OPERATIONGRAPH_HANDLE = 800, Graph, Handle, 1, Host;
    OPERATIONGRAPH_OPS = 801, Graph, Descriptor, ANY, Host;
    TENSOR_BYTE_ALIGNMENT = 900, Tensor, Int64, 1, Host;
    TENSOR_DATA_TYPE = 901, Tensor, Data, 1, Host;
    TENSOR_DIMENSIONS = 902, Tensor, Int64, DIM, Host;
    TENSOR_STRIDES = 903, Tensor, Int64, DIM, Host;
    TENSOR_UNIQUE_ID = 906, Tensor, Int64, 1, Host;
    TENSOR_IS_VIRTUAL = 907, Tensor, Boolean, 1, Either;
    TENSOR_IS_BY_VALUE = 908, Tensor, Boolean, 1, Either;
    VARIANT_PACK_UNIQUE_IDS = 1000, VariantPack, Int64, ANY, Host;
    VARIANT_PACK_DATA_POINTERS = 1001, VariantPack, Pointer, ANY, Host;
    VARIANT_PACK_WORKSPACE = 1003, VariantPack, Pointer, 1, Either;
    ENGINE_OPERATION_GRAPH = 1300, Engine, Descriptor, 1, Host;
    ENGINE_GLOBAL_INDEX = 1301, Engine, Int64, 1, Host;
    ENGINE_NUMERICAL_NOTE = 1303, Engine, NumericalNote, ANY, Library;
    ENGINE_BEHAVIOR_NOTE = 1305, Engine, BehaviorNote, ANY, Library;
    MATMUL_COMP_TYPE = 1500, Matmul, Data, 1, Host;
    OPERATION_MATMUL_ADESC = 1520, MatmulOperation, Descriptor, 1, Host;
    OPERATION_MATMUL_BDESC = 1521, MatmulOperation, Descriptor, 1, Host;
    OPERATION_MATMUL_CDESC = 1522, MatmulOperation, Descriptor, 1, Host;
    OPERATION_MATMUL_DESC = 1523, MatmulOperation, Descriptor, 1, Host;
    REDUCTION_OPERATOR = 1600, Reduction, ReductionOperator, 1, Host;
    REDUCTION_COMP_TYPE = 1601, Reduction, Data, 1, Host;
    REDUCTION_IS_DETERMINISTIC = 1602, Reduction, Boolean, 1, Either;
    OPERATION_REDUCTION_XDESC = 1610, ReductionOperation, Descriptor, 1, Host;
    OPERATION_REDUCTION_YDESC = 1611, ReductionOperation, Descriptor, 1, Host;
    OPERATION_REDUCTION_DESC = 1612, ReductionOperation, Descriptor, 1, Host;
    OPERATION_RESHAPE_XDESC = 2200, ReshapeOperation, Descriptor, 1, Host;
    OPERATION_RESHAPE_YDESC = 2201, ReshapeOperation, Descriptor, 1, Host;
}
