//! State of a run of `headroom train`: its allocation, which is its plan, and its reported end.

use headroom_planner::hardware::{context, reported};
use headroom_protocol::{message::Message, run::PlanSummary};

use crate::prediction::PlannedGpu;
use headroom_train::status::{ProgramEnd, Status};

/// Name of the only phase in such a run's plan.
const PHASE: &str = "training";

/// State of a run of `headroom train`.
#[derive(Debug, Default)]
pub struct BuiltinRunState {
    /// Whether the run is a `headroom train`.
    pub is: bool,
    /// Whether the run reported that it computes on the CPU.
    pub is_on_cpu: bool,
    /// Allocated memory in bytes.
    pub bytes: Option<u64>,
    /// Description of the activation recomputation.
    pub recompute: Option<Message>,
    pub ended: Option<ProgramEnd>,
    /// Last plan that was returned.
    reported: Option<PlanSummary>,
}

impl BuiltinRunState {
    /// Processes an entry of the status file.
    pub fn take(&mut self, status: Status) {
        match status {
            // A script may start several runs in sequence.
            Status::Started => (self.is, self.ended, self.recompute) = (true, None, None),
            Status::Recomputes { what } => self.recompute = Some(what),
            Status::Ended(ended) => self.ended = Some(ended),
            Status::NotSaved { .. } | Status::Other => {}
        }
    }

    /// Plan of the run, if it is new. On a GPU it includes the CUDA context. `None` until the allocation and the GPU
    /// are known.
    pub fn plan(&mut self, gpu: Option<&PlannedGpu>) -> Option<PlanSummary> {
        let bytes = self.bytes?;
        let (name, context_bytes) = match gpu {
            _ if self.is_on_cpu => ("CPU".to_owned(), 0),
            Some(gpu) => on_gpu(gpu),
            None => return None,
        };
        let peak_bytes = bytes.saturating_add(context_bytes);
        let plan = PlanSummary {
            gpu: name,
            // A run that does not fit ends at once.
            fits: true,
            peak_bytes,
            max_memory_allocated: bytes,
            max_memory_reserved: bytes,
            phases: vec![(PHASE.to_owned(), peak_bytes)],
            is_builtin: true,
            recompute: self.recompute.clone(),
        };
        (self.reported.as_ref() != Some(&plan)).then(|| {
            self.reported = Some(plan.clone());
            plan
        })
    }
}

fn on_gpu(gpu: &PlannedGpu) -> (String, u64) {
    let (name, device) = match gpu {
        PlannedGpu::Named(name) => (name.clone(), headroom_planner::hardware::find(name).ok()),
        PlannedGpu::Measured { name, total_bytes } => (name.clone(), reported(name, *total_bytes)),
    };
    let Some(device) = device else { return (name, 0) };
    let loading = context::ModuleLoading::Lazy;
    (device.name.to_string(), context::context_bytes(device.compute_capability, device.sm_count, loading).bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_reported_once_and_when_its_gpu_is_known() {
        let mut builtin = BuiltinRunState { is: true, bytes: Some(1 << 30), ..BuiltinRunState::default() };
        assert_eq!(builtin.plan(None), None);
        let gpu = PlannedGpu::Measured { name: "NVIDIA GeForce RTX 4070".to_owned(), total_bytes: Some(12 << 30) };
        let plan = builtin.plan(Some(&gpu)).expect("it is known");
        assert_eq!((&*plan.gpu, plan.is_builtin, plan.max_memory_allocated), ("GeForce RTX 4070", true, 1 << 30));
        assert!(plan.peak_bytes > 1 << 30 && plan.phases == [("training".to_owned(), plan.peak_bytes)]);
        assert_eq!(builtin.plan(Some(&gpu)), None);
        let mut on_cpu = BuiltinRunState { is: true, is_on_cpu: true, bytes: Some(7), ..BuiltinRunState::default() };
        assert_eq!(on_cpu.plan(None).map(|plan| (plan.gpu, plan.peak_bytes)), Some(("CPU".to_owned(), 7)));
    }
}
