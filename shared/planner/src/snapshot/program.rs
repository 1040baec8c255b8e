//! The program of a trace, to replay it on another GPU.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{Snapshot, StackId, TraceAction, history::History};
use crate::{
    dtype::Dtype,
    gpt::tensors::{Category, Lifetime},
    memory::{
        program::{Batch, Phase, Program, ProgramBuilder, ScheduleEntry, Slot},
        stored::{DerivedTensor, TensorTable},
    },
    plan::{
        Machine, Plan, RunOnMachine,
        basis::{Basis, RunKind},
    },
    recording::{ProgramError, ReplayRequest},
};

/// What allocations with one code share.
type Kind = (String, String, u64);

struct Writer<'a> {
    snapshot: &'a Snapshot,
    /// Whether blocks have names, which a trace with too many places and sizes has not.
    is_named: bool,
    tensors: Vec<Arc<DerivedTensor>>,
    codes: HashMap<Kind, u16>,
    /// Code of each stack and size.
    known: HashMap<(StackId, u64), u16>,
    w: ProgramBuilder,
    schedule: Vec<ScheduleEntry>,
    slots: BTreeMap<u64, Slot>,
    /// Bytes of all allocations, freed ones included.
    total_bytes: u64,
    has_events: bool,
}

/// Maximum number of bytes of all allocations, far above every trace, so that no sum of sizes exceeds 64 bits.
const MAX_TOTAL_BYTES: u64 = 1 << 62;

impl Writer<'_> {
    fn code(&mut self, stack: StackId, bytes: u64, is_before: bool) -> Result<u16, ProgramError> {
        if let Some(&code) = self.known.get(&(stack, bytes)) {
            return Ok(code);
        }
        let inner = self.snapshot.stack(stack).next().filter(|_| self.is_named);
        let user = self.snapshot.user_frame(stack).filter(|_| self.is_named);
        let name = match inner {
            Some(frame) => frame.name.to_owned(),
            None if is_before => "live before the trace".to_owned(),
            None => "allocation".to_owned(),
        };
        let kind = (name, user.map_or_else(String::new, |frame| frame.place()), bytes);
        let code = match self.codes.get(&kind) {
            Some(&code) => code,
            None => {
                // The largest number is that of a free.
                let code = u16::try_from(self.tensors.len()).ok().filter(|code| *code < u16::MAX);
                let code = code.ok_or(ProgramError::TooManyTensors)?;
                self.tensors.push(Arc::new(DerivedTensor {
                    name: kind.0.clone(),
                    module: String::new(),
                    category: Category::Activations,
                    lifetime: if is_before { Lifetime::Run } else { Lifetime::Intermediate },
                    shape: vec![bytes],
                    dtype: Dtype::Uint8,
                    bytes,
                    source: kind.1.as_str().into(),
                }));
                self.codes.insert(kind, code);
                code
            }
        };
        self.known.insert((stack, bytes), code);
        Ok(code)
    }

    fn alloc(&mut self, address: u64, stack: StackId, bytes: u64, is_before: bool) -> Result<(), ProgramError> {
        let bytes = self.snapshot.settings.rounded(bytes);
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        if self.total_bytes > MAX_TOTAL_BYTES {
            return Err(ProgramError::TensorsTooLarge);
        }
        let code = self.code(stack, bytes, is_before)?;
        self.free(address);
        let slot = self.w.alloc_code(code, None);
        self.slots.insert(address, slot);
        self.has_events = true;
        Ok(())
    }

    fn free(&mut self, address: u64) {
        if let Some(slot) = self.slots.remove(&address) {
            self.w.free(slot);
            self.has_events = true;
        }
    }

    fn end_section(&mut self, phase: Phase) {
        if std::mem::take(&mut self.has_events) {
            let id = self.w.section(Batch::Train);
            self.schedule.push(ScheduleEntry::once(vec![(phase, id)]));
        }
    }

    fn empty_cache(&mut self) {
        self.end_section(Phase::Rest);
        let id = self.w.section(Batch::Train);
        self.w.empty_cache_before(id);
        self.schedule.push(ScheduleEntry::once(vec![(Phase::Rest, id)]));
    }
}

/// The program of a history: the blocks that were live before the trace, then the trace.
fn program(history: &History<'_>) -> Result<Program, ProgramError> {
    program_with_names(history, true).or_else(|_| program_with_names(history, false))
}

fn program_with_names(history: &History<'_>, is_named: bool) -> Result<Program, ProgramError> {
    let mut writer = Writer {
        snapshot: history.snapshot,
        is_named,
        tensors: Vec::new(),
        codes: HashMap::new(),
        known: HashMap::new(),
        w: ProgramBuilder::new(0),
        schedule: Vec::new(),
        slots: BTreeMap::new(),
        total_bytes: 0,
        has_events: false,
    };
    for (&address, block) in &history.start.live {
        writer.alloc(address, block.stack, block.requested_bytes, true)?;
    }
    writer.end_section(Phase::Init);
    // Whether cached segments were released, and not by a request that then fails or allocates one.
    let mut is_released = false;
    for event in history.snapshot.events(history.device) {
        match event.action {
            TraceAction::SegmentFree | TraceAction::SegmentUnmap => is_released = true,
            TraceAction::SegmentAlloc | TraceAction::SegmentMap | TraceAction::Oom => is_released = false,
            _ if std::mem::take(&mut is_released) => writer.empty_cache(),
            _ => {}
        }
        match event.action {
            TraceAction::Alloc => writer.alloc(event.address, event.stack, event.bytes, false)?,
            TraceAction::FreeCompleted => writer.free(event.address),
            // The program ends here, as if the request had not been made.
            _ => {}
        }
    }
    writer.end_section(Phase::Rest);
    let (sections, n_slots) = writer.w.finish();
    let tensors = TensorTable::Derived(writer.tensors);
    Ok(Program { tensors, sections, schedule: writer.schedule, n_slots })
}

/// Replays the trace of a history on a machine.
///
/// # Errors
/// The trace has more sizes than a program.
pub fn plan(history: &History<'_>, machine: Machine) -> Result<Plan<ReplayRequest>, ProgramError> {
    let program = program(history)?;
    let mut remarks = vec![
        "The replay has the blocks of the snapshot. Another GPU may choose other kernels, with other workspaces."
            .to_owned(),
    ];
    let (n_before, _) = history.before();
    if n_before > 0 {
        remarks.push(format!(
            "{n_before} blocks were live before the trace. The replay allocates them first, in the order of their \
             addresses; record from the start of the program for exact figures."
        ));
    }
    if history.n_streams() > 1 || !history.private_pools().is_empty() {
        remarks
            .push("The replay takes all blocks from one pool. The snapshot has several streams or pools.".to_owned());
    }
    let is_oom = |action| action == TraceAction::Oom;
    if history.snapshot.events(history.device).any(|event| is_oom(event.action)) {
        remarks.push(
            "The snapshot has a request that failed. The run needs more memory than the replay shows.".to_owned(),
        );
    }
    let request = ReplayRequest::of_snapshot(machine, remarks);
    Ok(Plan::simulate(request, program, |request, outcome| {
        let Machine { context, other_processes_bytes, .. } = request.machine();
        Basis::new(RunKind::FollowsCode, outcome, context, [*other_processes_bytes; 2])
    }))
}
