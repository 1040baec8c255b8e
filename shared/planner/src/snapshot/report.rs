//! What a snapshot shows about one device, as values and as JSON.

use super::{
    Check, DifferenceKind, Frame, History, Moment, OomEvent, SiteAtPeak, Snapshot, StackId, check,
    history::{Peaks, PoolState},
};
use crate::report::{Node, number, words};

/// Number of places in the document.
const MAX_SITES: usize = 64;
/// Number of frames of a stack in the document.
const MAX_FRAMES: usize = 32;

/// The memory of one device in a snapshot.
#[derive(Debug)]
pub struct Report<'a> {
    /// The snapshot.
    pub snapshot: &'a Snapshot,
    /// Index of the device.
    pub device: usize,
    /// Number of events in its trace.
    pub n_events: usize,
    /// Time from the first to the last event in microseconds; `None` without times.
    pub duration_us: Option<u64>,
    /// Number of blocks that were live before the trace.
    pub n_blocks_before: u64,
    /// Memory before the trace.
    pub before: Moment,
    /// The moment with the highest allocated memory.
    pub peak_allocated: Moment,
    /// The moment with the highest reserved memory.
    pub peak_reserved: Moment,
    /// Memory at the end of the trace.
    pub end: Moment,
    /// What is live at the highest allocated memory, largest first.
    pub sites: Vec<SiteAtPeak<'a>>,
    /// Failed requests, the first hundred.
    pub ooms: Vec<OomEvent>,
    /// Pools besides the default one.
    pub pools: Vec<PoolState>,
    /// Number of streams with allocations.
    pub n_streams: usize,
    /// Number of events that contradict the segments.
    pub n_contradictions: usize,
    /// Comparison of the trace with the replica of the allocator.
    pub check: Check,
}

impl<'a> Report<'a> {
    /// The report on a device.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, device: usize) -> Self {
        let history = History::new(snapshot, device);
        let (n_blocks_before, before) = history.before();
        let Peaks { allocated, reserved, end, ooms, sites } = history.peaks();
        let mut events = snapshot.events(device).filter(|event| event.time_us > 0);
        let first = events.next().map(|event| event.time_us);
        let last = events.next_back().map(|event| event.time_us);
        Self {
            snapshot,
            device,
            n_events: snapshot.n_events(device),
            duration_us: first.zip(last).map(|(first, last)| last.saturating_sub(first)),
            n_blocks_before,
            before,
            peak_allocated: allocated,
            peak_reserved: reserved,
            end,
            sites,
            ooms,
            pools: history.private_pools(),
            n_streams: history.n_streams(),
            n_contradictions: history.n_contradictions,
            check: check(&history),
        }
    }

    /// The report as a document.
    #[must_use]
    pub fn document(&self) -> Node {
        let settings = &self.snapshot.settings;
        let settings = Node::Object(vec![
            ("alloc_conf", words(Some(&settings.text))),
            ("expandable_segments", number(settings.expandable_segments)),
            ("max_split_bytes", settings.max_split_bytes.map_or_else(|| words(None), number)),
            ("garbage_collection_threshold", number(settings.garbage_collection_threshold)),
        ]);
        let sites = self.sites.iter().take(MAX_SITES).map(|site| self.site_node(site));
        let ooms = self.ooms.iter().map(|oom| {
            Node::Object(vec![
                ("requested_bytes", number(oom.requested_bytes)),
                ("device_free_bytes", number(oom.device_free_bytes)),
                ("moment", moment_node(&oom.moment)),
                ("source", self.source_node(oom.stack)),
                ("stack", self.stack_node(oom.stack)),
            ])
        });
        let pools = self.pools.iter().map(|pool| {
            Node::Object(vec![
                ("id", Node::List(vec![number(pool.id.0), number(pool.id.1)])),
                ("segments", number(pool.n_segments)),
                ("reserved_bytes", number(pool.reserved_bytes)),
                ("allocated_bytes", number(pool.allocated_bytes)),
            ])
        });
        Node::Object(vec![
            ("device", number(self.device)),
            ("devices", number(self.snapshot.n_devices())),
            ("settings", settings),
            ("events", number(self.n_events)),
            ("duration_us", self.duration_us.map_or_else(|| words(None), number)),
            ("streams", number(self.n_streams)),
            ("blocks_before", number(self.n_blocks_before)),
            ("before", moment_node(&self.before)),
            ("peak_allocated", moment_node(&self.peak_allocated)),
            ("peak_reserved", moment_node(&self.peak_reserved)),
            ("end", moment_node(&self.end)),
            ("largest", Node::List(sites.collect())),
            ("ooms", Node::List(ooms.collect())),
            ("private_pools", Node::List(pools.collect())),
            ("contradictions", number(self.n_contradictions)),
            ("allocator", check_node(&self.check)),
        ])
    }

    fn site_node(&self, site: &SiteAtPeak<'_>) -> Node {
        Node::Object(vec![
            ("function", words(site.inner.map(|frame| frame.name))),
            ("library_source", words(site.library.map(|frame| frame.place()).as_deref())),
            ("source", words(site.user.map(|frame| frame.place()).as_deref())),
            ("count", number(site.count)),
            ("bytes", number(site.bytes)),
            ("largest_bytes", number(site.largest_bytes)),
            ("before_trace", number(site.is_before)),
            ("stack", self.stack_node(site.stack)),
        ])
    }

    fn source_node(&self, stack: StackId) -> Node {
        words(self.snapshot.user_frame(stack).map(|frame| frame.place()).as_deref())
    }

    fn stack_node(&self, stack: StackId) -> Node {
        let frame = |frame: Frame<'_>| {
            Node::Object(vec![
                ("function", words(Some(frame.name))),
                ("file", words(Some(frame.filename))),
                ("line", number(frame.line)),
            ])
        };
        Node::List(self.snapshot.stack(stack).take(MAX_FRAMES).map(frame).collect())
    }
}

fn moment_node(moment: &Moment) -> Node {
    Node::Object(vec![
        ("events", number(moment.n_events)),
        ("allocated_bytes", number(moment.allocated_bytes)),
        ("reserved_bytes", number(moment.reserved_bytes)),
        ("free_bytes", number(moment.free.bytes)),
        ("largest_free_block_bytes", number(moment.free.largest_bytes)),
        ("free_blocks", number(moment.free.n_blocks)),
    ])
}

fn check_node(check: &Check) -> Node {
    let difference = check.difference.map(|difference| {
        Node::Object(vec![
            ("event", number(difference.event)),
            ("kind", words(Some(difference.kind.name()))),
            ("recorded", number(difference.recorded)),
            ("replica", number(difference.replica)),
        ])
    });
    Node::Object(vec![
        ("agrees", number(check.agrees())),
        ("allocations", number(check.n_allocations)),
        ("segments", number(check.n_segments)),
        ("difference", difference.unwrap_or_else(|| words(None))),
        ("obstacle", words(check.obstacle)),
    ])
}

impl Check {
    /// Whether the replica does what the trace does.
    #[must_use]
    pub const fn agrees(&self) -> bool {
        self.difference.is_none() && self.obstacle.is_none()
    }
}

impl DifferenceKind {
    /// Name in the JSON schema.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Reserved => "reserved",
            Self::Released => "released",
            Self::Failure => "failure",
        }
    }
}
