//! Values of a pickle: the kinds of its dicts and lists, and the keys of a snapshot.

use crate::snapshot::Problem;

/// A value on the stack of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::snapshot) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(u32),
    /// Number of a dict, list or tuple.
    Object(u32),
    /// A value that no field needs.
    Opaque,
}

impl Value {
    /// An unsigned integer of at most `limit`.
    pub(super) fn unsigned(self, limit: u64) -> Result<u64, Problem> {
        match self {
            Self::Int(number) => u64::try_from(number).ok().filter(|&number| number <= limit).ok_or(Problem::Number),
            _ => Err(Problem::Incomplete),
        }
    }

    fn is_given(self) -> bool {
        self != Self::None
    }
}

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    EmptyDict,
    EmptyList,
    /// Its contents are needed nowhere.
    Opaque,
    Frame,
    Stack,
    Event,
    Block,
    Segment,
    Events,
    Blocks,
    Segments,
    Traces,
    /// A tuple of two integers.
    Pair,
    Settings,
    Divisions,
    Root,
}

impl Kind {
    const ALL: [Self; 16] = [
        Self::EmptyDict,
        Self::EmptyList,
        Self::Opaque,
        Self::Frame,
        Self::Stack,
        Self::Event,
        Self::Block,
        Self::Segment,
        Self::Events,
        Self::Blocks,
        Self::Segments,
        Self::Traces,
        Self::Pair,
        Self::Settings,
        Self::Divisions,
        Self::Root,
    ];
}

/// A dict, list or tuple: its kind in the highest four bits and an index into the table of that kind.
#[derive(Clone, Copy, Debug)]
pub(in crate::snapshot) struct Object(u32);

const KIND_SHIFT: u32 = 28;

impl Object {
    pub(in crate::snapshot) const EMPTY_DICT: Self = Self::new(Kind::EmptyDict, 0);
    pub(in crate::snapshot) const EMPTY_LIST: Self = Self::new(Kind::EmptyList, 0);
    pub(super) const OPAQUE: Self = Self::new(Kind::Opaque, 0);

    const fn new(kind: Kind, index: u32) -> Self {
        Self((kind as u32) << KIND_SHIFT | index)
    }

    pub(super) fn of(kind: Kind, index: usize) -> Result<Self, Problem> {
        let index = u32::try_from(index).ok().filter(|index| index >> KIND_SHIFT == 0).ok_or(Problem::TooMany)?;
        Ok(Self::new(kind, index))
    }

    pub(super) const fn kind(self) -> Kind {
        Kind::ALL[(self.0 >> KIND_SHIFT) as usize]
    }

    pub(super) const fn index(self) -> u32 {
        self.0 & ((1 << KIND_SHIFT) - 1)
    }
}

macro_rules! known_texts {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// Texts of a snapshot, which have the first numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::upper_case_acronyms, reason = "the texts have these names")]
        pub(super) enum Known { $($name),* }

        impl Known {
            pub(super) const TEXTS: &[&str] = &[$($text),*];
        }
    };
}

known_texts! {
    Empty = "",
    Name = "name",
    Filename = "filename",
    Line = "line",
    Action = "action",
    Addr = "addr",
    DeviceFree = "device_free",
    Size = "size",
    Stream = "stream",
    Frames = "frames",
    TimeUs = "time_us",
    Address = "address",
    TotalSize = "total_size",
    RequestedSize = "requested_size",
    State = "state",
    SegmentType = "segment_type",
    SegmentPoolId = "segment_pool_id",
    IsExpandable = "is_expandable",
    Device = "device",
    Blocks = "blocks",
    Segments = "segments",
    DeviceTraces = "device_traces",
    AllocatorSettings = "allocator_settings",
    AllocConf = "PYTORCH_CUDA_ALLOC_CONF",
    MaxSplitSize = "max_split_size",
    GarbageCollectionThreshold = "garbage_collection_threshold",
    ExpandableSegments = "expandable_segments",
    RoundupDivisions = "roundup_power2_divisions",
    Alloc = "alloc",
    FreeRequested = "free_requested",
    FreeCompleted = "free_completed",
    SegmentAlloc = "segment_alloc",
    SegmentFree = "segment_free",
    SegmentMap = "segment_map",
    SegmentUnmap = "segment_unmap",
    Oom = "oom",
    ActiveAllocated = "active_allocated",
    ActivePendingFree = "active_pending_free",
    ActiveAwaitingFree = "active_awaiting_free",
    Small = "small",
}

/// Number of keys; the texts behind them are values.
const N_KEYS: usize = Known::Alloc as usize;

/// Values of a dict by their key.
pub(super) struct Fields([Value; N_KEYS]);

impl Fields {
    pub(super) fn of(pairs: &[Value]) -> Self {
        let mut fields = [Value::None; N_KEYS];
        for pair in pairs.chunks_exact(2) {
            if let Value::Text(key) = pair[0]
                && let Some(field) = fields.get_mut(key as usize)
            {
                *field = pair[1];
            }
        }
        Self(fields)
    }

    pub(super) const fn get(&self, key: Known) -> Value {
        self.0[key as usize]
    }

    pub(super) fn has(&self, key: Known) -> bool {
        self.get(key).is_given()
    }
}
