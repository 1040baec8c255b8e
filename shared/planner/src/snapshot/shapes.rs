//! Gives dicts and lists of a pickle their types by their keys: frames, stacks, events, blocks, segments, settings.

mod object;

use std::{collections::HashMap, ops::Range};

use super::{
    AllocatorSettings, Block, BlockState, FrameId, Problem, Segment, Snapshot, StackId, TraceAction, TraceEvent,
    settings::N_DIVISIONS,
    store::{Chunked, Interner},
};
use object::{Fields, Kind, Known};
pub(super) use object::{Object, Value};

/// Maximum number of distinct texts and of distinct frames.
const MAX_TEXTS: usize = 1 << 22;
/// Maximum number of distinct stacks.
const MAX_STACKS: usize = 1 << 24;
/// Maximum number of frames in all distinct stacks.
const MAX_STACK_FRAMES: usize = 1 << 26;
/// Maximum number of frames of a stack; outer ones are left out.
const MAX_DEPTH: usize = 1 << 12;
/// Maximum number of dicts and lists.
const MAX_OBJECTS: usize = 1 << 27;
/// Maximum number of events and of blocks, counted as often as they are in a list.
const MAX_ITEMS: usize = 1 << 25;
/// Maximum number of segments, and of pools and streams.
const MAX_SEGMENTS: usize = 1 << 20;
/// Maximum number of devices.
const MAX_DEVICES: usize = 1 << 8;
/// Maximum size in bytes, far above every GPU.
const MAX_BYTES: u64 = 1 << 50;
/// Maximum address.
const MAX_ADDRESS: u64 = 1 << 60;

/// The typed contents of a pickle.
#[derive(Debug)]
pub(super) struct Shapes {
    texts: Interner<str>,
    frames: Vec<FrameId>,
    frame_numbers: HashMap<FrameId, u32>,
    stacks: Interner<[u32]>,
    /// Frames in all stacks.
    n_stack_frames: usize,
    streams: Vec<u64>,
    events: Chunked<TraceEvent>,
    blocks: Chunked<Block>,
    segments: Vec<Segment>,
    /// Lists of events, blocks and segments, as runs of their numbers.
    runs: Vec<Vec<Range<u32>>>,
    /// Lists of traces.
    traces: Vec<Vec<u32>>,
    pairs: Vec<(i64, i64)>,
    settings: Vec<AllocatorSettings>,
    divisions: Vec<[u64; N_DIVISIONS]>,
    roots: Vec<[Value; 3]>,
    objects: Vec<Object>,
}

impl Default for Shapes {
    fn default() -> Self {
        let mut texts = Interner::<str>::default();
        for text in Known::TEXTS {
            // The limit is larger.
            let _ = texts.number(text, MAX_TEXTS);
        }
        let mut stacks = Interner::<[u32]>::default();
        let _ = stacks.number(&[], MAX_STACKS);
        Self {
            texts,
            frames: Vec::new(),
            frame_numbers: HashMap::new(),
            stacks,
            n_stack_frames: 0,
            streams: Vec::new(),
            events: Chunked::default(),
            blocks: Chunked::default(),
            segments: Vec::new(),
            runs: Vec::new(),
            traces: Vec::new(),
            pairs: Vec::new(),
            settings: Vec::new(),
            divisions: Vec::new(),
            roots: Vec::new(),
            objects: Vec::new(),
        }
    }
}

impl Shapes {
    /// Number of a text.
    #[inline]
    pub(super) fn text(&mut self, text: &str) -> Result<u32, Problem> {
        self.texts.number(text, MAX_TEXTS)
    }

    pub(super) fn new_object(&mut self, object: Object) -> Result<u32, Problem> {
        if self.objects.len() >= MAX_OBJECTS {
            return Err(Problem::TooMany);
        }
        self.objects.push(object);
        u32::try_from(self.objects.len() - 1).map_err(|_| Problem::TooMany)
    }

    fn object(&self, value: Value) -> Option<Object> {
        match value {
            Value::Object(number) => self.objects.get(number as usize).copied(),
            _ => None,
        }
    }

    /// Index of a value that is an object of a kind.
    fn index_of(&self, value: Value, kind: Kind) -> Option<u32> {
        self.object(value).filter(|object| object.kind() == kind).map(Object::index)
    }

    /// Puts keys and values into a dict. Python and PyTorch write all items of a dict of the allocator at once.
    pub(super) fn set_items(&mut self, dict: u32, pairs: &[Value]) -> Result<(), Problem> {
        let known = self.objects.get(dict as usize).copied().ok_or(Problem::Memo)?;
        let typed = match known.kind() {
            Kind::EmptyDict if pairs.is_empty() => return Ok(()),
            Kind::EmptyDict => self.typed(pairs)?,
            // A later part of a dict that no field needs.
            Kind::Opaque => {
                Some(self.typed(pairs)?).filter(|object| object.kind() == Kind::Opaque).ok_or(Problem::Incomplete)?
            }
            _ => return Err(Problem::Incomplete),
        };
        self.objects[dict as usize] = typed;
        Ok(())
    }

    fn typed(&mut self, pairs: &[Value]) -> Result<Object, Problem> {
        let fields = Fields::of(pairs);
        if fields.has(Known::Action) {
            self.event(&fields)
        } else if fields.has(Known::Filename) && fields.has(Known::Line) {
            self.frame(&fields)
        } else if fields.has(Known::State) && fields.has(Known::Size) {
            self.block(&fields)
        } else if fields.has(Known::TotalSize) {
            self.segment(&fields)
        } else if fields.has(Known::Segments) || fields.has(Known::DeviceTraces) {
            let root = [Known::Segments, Known::DeviceTraces, Known::AllocatorSettings].map(|key| fields.get(key));
            self.roots.push(root);
            Object::of(Kind::Root, self.roots.len() - 1)
        } else if fields.has(Known::AllocConf) || fields.has(Known::ExpandableSegments) {
            self.settings(&fields)
        } else {
            self.divisions(pairs)
        }
    }

    fn frame(&mut self, fields: &Fields) -> Result<Object, Problem> {
        let text = |key| match fields.get(key) {
            Value::Text(text) => text,
            _ => Known::Empty as u32,
        };
        let line = match fields.get(Known::Line) {
            Value::Int(line) => u32::try_from(line).unwrap_or_default(),
            _ => 0,
        };
        let frame = FrameId { name: text(Known::Name), filename: text(Known::Filename), line };
        let number = match self.frame_numbers.get(&frame) {
            Some(&number) => number,
            None => {
                if self.frames.len() >= MAX_TEXTS {
                    return Err(Problem::TooMany);
                }
                let number = u32::try_from(self.frames.len()).map_err(|_| Problem::TooMany)?;
                self.frames.push(frame);
                self.frame_numbers.insert(frame, number);
                number
            }
        };
        Object::of(Kind::Frame, number as usize)
    }

    /// Stack of a field; without one, the empty stack.
    fn stack(&self, fields: &Fields) -> StackId {
        StackId(self.index_of(fields.get(Known::Frames), Kind::Stack).unwrap_or_default())
    }

    fn stream(&mut self, value: Value) -> Result<u16, Problem> {
        // A pointer, whose highest bit may be set.
        let stream = match value {
            Value::Int(stream) => stream.cast_unsigned(),
            _ => 0,
        };
        let known = self.streams.iter().position(|&known| known == stream);
        let index = known.unwrap_or(self.streams.len());
        if known.is_none() {
            if self.streams.len() >= MAX_DEVICES * 4 {
                return Err(Problem::TooMany);
            }
            self.streams.push(stream);
        }
        u16::try_from(index).map_err(|_| Problem::TooMany)
    }

    fn event(&mut self, fields: &Fields) -> Result<Object, Problem> {
        let Value::Text(action) = fields.get(Known::Action) else { return Err(Problem::Incomplete) };
        let action = ACTIONS.iter().find(|(known, _)| *known as u32 == action).map(|(_, action)| *action);
        let action = action.unwrap_or(TraceAction::Other);
        let address = fields.get(if action == TraceAction::Oom { Known::DeviceFree } else { Known::Addr });
        let (address, bytes) = match action {
            TraceAction::Other => (0, 0),
            _ => (address.unsigned(MAX_ADDRESS)?, fields.get(Known::Size).unsigned(MAX_BYTES)?),
        };
        let time_us = fields.get(Known::TimeUs).unsigned(u64::MAX).unwrap_or_default();
        let stack = self.stack(fields);
        let stream = self.stream(fields.get(Known::Stream))?;
        if self.events.len() >= MAX_ITEMS {
            return Err(Problem::TooMany);
        }
        self.events.push(TraceEvent { address, bytes, time_us, stack, stream, action });
        Object::of(Kind::Event, self.events.len() - 1)
    }

    fn block(&mut self, fields: &Fields) -> Result<Object, Problem> {
        let bytes = fields.get(Known::Size).unsigned(MAX_BYTES)?;
        let Value::Text(state) = fields.get(Known::State) else { return Err(Problem::Incomplete) };
        let state = match state {
            text if text == Known::ActiveAllocated as u32 => BlockState::Allocated,
            text if text == Known::ActivePendingFree as u32 => BlockState::PendingFree,
            text if text == Known::ActiveAwaitingFree as u32 => BlockState::PendingFree,
            _ => BlockState::Free,
        };
        let address = match fields.get(Known::Address) {
            Value::None => None,
            address => Some(address.unsigned(MAX_ADDRESS)?),
        };
        let requested_bytes = fields.get(Known::RequestedSize).unsigned(MAX_BYTES).unwrap_or(bytes);
        if self.blocks.len() >= MAX_ITEMS {
            return Err(Problem::TooMany);
        }
        let stack = self.stack(fields);
        self.blocks.push(Block { address, bytes, requested_bytes, state, stack });
        Object::of(Kind::Block, self.blocks.len() - 1)
    }

    fn segment(&mut self, fields: &Fields) -> Result<Object, Problem> {
        if self.segments.len() >= MAX_SEGMENTS {
            return Err(Problem::TooMany);
        }
        let pool = self.index_of(fields.get(Known::SegmentPoolId), Kind::Pair);
        let pool = pool.and_then(|index| self.pairs.get(index as usize)).copied().unwrap_or_default();
        let stream = self.stream(fields.get(Known::Stream))?;
        self.segments.push(Segment {
            device: fields.get(Known::Device).unsigned(MAX_DEVICES as u64 - 1).unwrap_or_default(),
            address: fields.get(Known::Address).unsigned(MAX_ADDRESS)?,
            bytes: fields.get(Known::TotalSize).unsigned(MAX_BYTES)?,
            stream: self.streams.get(usize::from(stream)).copied().unwrap_or_default(),
            is_small: fields.get(Known::SegmentType) == Value::Text(Known::Small as u32),
            is_expandable: fields.get(Known::IsExpandable) == Value::Bool(true),
            pool: (pool.0.cast_unsigned(), pool.1.cast_unsigned()),
            blocks: self.index_of(fields.get(Known::Blocks), Kind::Blocks),
        });
        Object::of(Kind::Segment, self.segments.len() - 1)
    }

    fn settings(&mut self, fields: &Fields) -> Result<Object, Problem> {
        if self.settings.len() >= MAX_DEVICES {
            return Err(Problem::TooMany);
        }
        let text = match fields.get(Known::AllocConf) {
            Value::Text(text) => self.texts.get(text).map_or_else(String::new, ToString::to_string),
            _ => String::new(),
        };
        let divisions = self.index_of(fields.get(Known::RoundupDivisions), Kind::Divisions);
        self.settings.push(AllocatorSettings {
            text,
            expandable_segments: fields.get(Known::ExpandableSegments) == Value::Bool(true),
            // Without a limit, the number is -1.
            max_split_bytes: fields.get(Known::MaxSplitSize).unsigned(MAX_BYTES).ok().filter(|&bytes| bytes > 0),
            garbage_collection_threshold: match fields.get(Known::GarbageCollectionThreshold) {
                Value::Float(threshold) => threshold,
                _ => 0.0,
            },
            divisions: divisions.and_then(|index| self.divisions.get(index as usize)).copied().unwrap_or_default(),
        });
        Object::of(Kind::Settings, self.settings.len() - 1)
    }

    /// A dict whose keys are powers of two in MiB as texts; any other dict is opaque.
    fn divisions(&mut self, pairs: &[Value]) -> Result<Object, Problem> {
        let mut divisions = [0; N_DIVISIONS];
        for pair in pairs.chunks_exact(2) {
            let [Value::Text(key), Value::Int(value)] = *pair else { return Ok(Object::OPAQUE) };
            let mib = self.texts.get(key).and_then(|key| key.parse::<u64>().ok());
            let Some(interval) = mib.filter(|mib| mib.is_power_of_two()) else { return Ok(Object::OPAQUE) };
            let (Some(field), Ok(value)) = (divisions.get_mut(interval.ilog2() as usize), u64::try_from(value)) else {
                return Ok(Object::OPAQUE);
            };
            *field = value;
        }
        if self.divisions.len() >= MAX_DEVICES {
            return Ok(Object::OPAQUE);
        }
        self.divisions.push(divisions);
        Object::of(Kind::Divisions, self.divisions.len() - 1)
    }

    /// Appends items to a list, or makes a tuple of them.
    pub(super) fn append(&mut self, list: u32, items: &[Value]) -> Result<(), Problem> {
        let known = self.objects.get(list as usize).copied().ok_or(Problem::Memo)?;
        let Some(&first) = items.first() else { return Ok(()) };
        let kind = match (known.kind(), self.object(first).map(Object::kind)) {
            (Kind::EmptyList, Some(Kind::Frame)) | (Kind::Stack, _) => Kind::Stack,
            (Kind::EmptyList, Some(Kind::Event)) | (Kind::Events, _) => Kind::Events,
            (Kind::EmptyList, Some(Kind::Block)) | (Kind::Blocks, _) => Kind::Blocks,
            (Kind::EmptyList, Some(Kind::Segment)) | (Kind::Segments, _) => Kind::Segments,
            (Kind::EmptyList, Some(Kind::Events | Kind::EmptyList)) | (Kind::Traces, _) => Kind::Traces,
            (Kind::EmptyList, None) if items.len() == 2 => Kind::Pair,
            _ => Kind::Opaque,
        };
        self.objects[list as usize] = match kind {
            Kind::Stack => self.longer_stack(known, items)?,
            Kind::Events => self.longer_list(known, kind, Kind::Event, items)?,
            Kind::Blocks => self.longer_list(known, kind, Kind::Block, items)?,
            Kind::Segments => self.longer_list(known, kind, Kind::Segment, items)?,
            Kind::Traces => self.longer_traces(known, items)?,
            Kind::Pair => self.pair(items)?,
            _ => Object::OPAQUE,
        };
        Ok(())
    }

    fn longer_stack(&mut self, known: Object, items: &[Value]) -> Result<Object, Problem> {
        let mut frames: Vec<u32> = Vec::with_capacity(items.len());
        if known.kind() == Kind::Stack {
            frames.extend_from_slice(self.stacks.get(known.index()).map_or(&[], |stack| stack));
        }
        for &item in items.iter().take(MAX_DEPTH.saturating_sub(frames.len())) {
            frames.push(self.index_of(item, Kind::Frame).ok_or(Problem::Incomplete)?);
        }
        let before = self.stacks.len();
        let number = self.stacks.number(&frames, MAX_STACKS)?;
        if self.stacks.len() > before {
            self.n_stack_frames += frames.len();
            if self.n_stack_frames > MAX_STACK_FRAMES {
                return Err(Problem::TooMany);
            }
        }
        Object::of(Kind::Stack, number as usize)
    }

    fn longer_list(&mut self, known: Object, list: Kind, item: Kind, items: &[Value]) -> Result<Object, Problem> {
        let object = if known.kind() == list {
            known
        } else {
            self.runs.push(Vec::new());
            Object::of(list, self.runs.len() - 1)?
        };
        for &value in items {
            let index = self.index_of(value, item).ok_or(Problem::Incomplete)?;
            let runs = &mut self.runs[object.index() as usize];
            match runs.last_mut() {
                Some(run) if run.end == index => run.end += 1,
                _ => runs.push(index..index + 1),
            }
        }
        Ok(object)
    }

    fn longer_traces(&mut self, known: Object, items: &[Value]) -> Result<Object, Problem> {
        let object = if known.kind() == Kind::Traces {
            known
        } else {
            self.traces.push(Vec::new());
            Object::of(Kind::Traces, self.traces.len() - 1)?
        };
        for &value in items {
            let traces = &self.traces[object.index() as usize];
            let is_trace = self.object(value).is_some_and(|item| matches!(item.kind(), Kind::Events | Kind::EmptyList));
            let (true, Value::Object(number)) = (is_trace && traces.len() < MAX_DEVICES, value) else {
                // Another list of lists.
                return Ok(Object::OPAQUE);
            };
            self.traces[object.index() as usize].push(number);
        }
        Ok(object)
    }

    fn pair(&mut self, items: &[Value]) -> Result<Object, Problem> {
        let [Value::Int(first), Value::Int(second)] = *items else { return Ok(Object::OPAQUE) };
        let pair = (first, second);
        // The segments of a pool follow one another, and there are few pools.
        let known = self.pairs.iter().rev().take(64).position(|known| *known == pair);
        let index = match known {
            Some(back) => self.pairs.len() - 1 - back,
            None if self.pairs.len() >= MAX_SEGMENTS => return Ok(Object::OPAQUE),
            None => {
                self.pairs.push(pair);
                self.pairs.len() - 1
            }
        };
        Object::of(Kind::Pair, index)
    }

    /// The runs of a list of a kind.
    fn runs_of(&self, object: Option<Object>, kind: Kind) -> Vec<Range<u32>> {
        let list = object.filter(|object| object.kind() == kind);
        list.and_then(|list| self.runs.get(list.index() as usize)).cloned().unwrap_or_default()
    }

    /// The snapshot whose root is a value.
    pub(super) fn finish(mut self, root: Value) -> Result<Snapshot, Problem> {
        let root = self.index_of(root, Kind::Root).ok_or(Problem::NotASnapshot)?;
        let [segments, traces, settings] = *self.roots.get(root as usize).ok_or(Problem::NotASnapshot)?;
        let mut order = Vec::new();
        for run in self.runs_of(self.object(segments), Kind::Segments) {
            order.extend(run.filter_map(|index| self.segments.get(index as usize).cloned()));
            if order.len() > MAX_SEGMENTS {
                return Err(Problem::TooMany);
            }
        }
        let traces = self.index_of(traces, Kind::Traces).map(|index| self.traces[index as usize].clone());
        let traces: Vec<Vec<Range<u32>>> = traces
            .unwrap_or_default()
            .into_iter()
            .map(|trace| self.runs_of(self.object(Value::Object(trace)), Kind::Events))
            .collect();
        let length = |runs: &[Range<u32>]| runs.iter().map(|run| run.len() as u64).sum::<u64>();
        let n_events: u64 = traces.iter().map(|runs| length(runs)).sum();
        let block_runs = |segment: &Segment| segment.blocks.and_then(|list| self.runs.get(list as usize));
        let n_blocks: u64 = order.iter().filter_map(block_runs).map(|runs| length(runs)).sum();
        if n_events > MAX_ITEMS as u64 || n_blocks > MAX_ITEMS as u64 {
            return Err(Problem::TooMany);
        }
        let settings = self.index_of(settings, Kind::Settings).map(|index| self.settings.swap_remove(index as usize));
        Ok(Snapshot {
            settings: settings.unwrap_or_default(),
            segments: order,
            texts: self.texts.into_values(),
            frames: self.frames,
            stacks: self.stacks.into_values(),
            streams: self.streams,
            events: self.events,
            blocks: self.blocks,
            lists: self.runs,
            traces,
        })
    }
}

const ACTIONS: [(Known, TraceAction); 8] = [
    (Known::Alloc, TraceAction::Alloc),
    (Known::FreeCompleted, TraceAction::FreeCompleted),
    (Known::FreeRequested, TraceAction::FreeRequested),
    (Known::SegmentAlloc, TraceAction::SegmentAlloc),
    (Known::SegmentFree, TraceAction::SegmentFree),
    (Known::SegmentMap, TraceAction::SegmentMap),
    (Known::SegmentUnmap, TraceAction::SegmentUnmap),
    (Known::Oom, TraceAction::Oom),
];
