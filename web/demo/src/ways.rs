//! Memory requirements, availability and preference of the ways to run a model.

use headroom_kernels::layout::Layout;
use headroom_planner::gpt::{
    GptConfig,
    buffers::{self, Buffers, Storage, inference::Inference},
    tensors::TensorTooLarge,
};
use headroom_protocol::demo::{DemoBackend, Plan};
use headroom_text::{self as text, Key, Text};

/// Size of WebAssembly's address space in bytes.
const WASM_BYTES: u64 = 1 << 32;
/// Memory in bytes reserved for the program itself, including pieces of files and messages.
const PROGRAM_BYTES: u64 = 64 << 20;

/// The available hardware.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Whether the WebGPU adapter computes on the CPU, or why WebGPU is unavailable.
    pub gpu: Result<bool, Text>,
    /// The GPU's memory in bytes, if the user entered it.
    pub gpu_bytes: Option<u64>,
    /// The machine's memory in bytes, if the browser reports it.
    pub machine_bytes: Option<u64>,
}

/// Returns the inference settings for WebGPU.
pub const fn inference(way: DemoBackend) -> Inference {
    Inference { half: matches!(way, DemoBackend::WebGpuHalf), attention: true }
}

/// Returns the storage format of the matrices on the CPU.
pub const fn storage(way: DemoBackend) -> Storage {
    if way.is_compact() { Storage::Int16 } else { Storage::F32 }
}

fn buffers_of(way: DemoBackend, config: &GptConfig) -> Result<Buffers, TensorTooLarge> {
    if way.is_webgpu() { inference(way).buffers(config) } else { buffers::decoder(config, storage(way)) }
}

impl Machine {
    /// Returns the memory plan of every way, with the reason if a way is unavailable.
    pub fn plans(&self, config: &GptConfig) -> Vec<Plan> {
        DemoBackend::ALL.map(|way| self.plan(way, config)).into()
    }

    fn plan(&self, way: DemoBackend, config: &GptConfig) -> Plan {
        let bytes = match buffers_of(way, config) {
            Ok(list) => list.bytes(),
            Err(error) => return Plan { way, bytes: None, refusal: Some(error.text()) },
        };
        Plan { way, bytes: Some(bytes), refusal: self.refusal(way, bytes, config) }
    }

    fn refusal(&self, way: DemoBackend, bytes: u64, config: &GptConfig) -> Option<Text> {
        let beyond = |most: Option<u64>, said: fn(text::Part, text::Part) -> Text| {
            most.filter(|&most| bytes > most).map(|most| said(text::size(bytes - most), text::size(most)))
        };
        if way.is_webgpu() {
            // The detailed reason is shown once, elsewhere on the page.
            return self.gpu.is_err().then(|| text::DEMO_NO_GPU.into());
        }
        // Each parameter needs a staging buffer while it is loaded.
        let largest = Layout::new(config).map_or(0, |layout| layout.largest() as u64);
        let staging = largest.saturating_mul(4).saturating_add(PROGRAM_BYTES);
        let room = WASM_BYTES.saturating_sub(staging);
        beyond(Some(room), text::demo_beyond_wasm).or_else(|| beyond(self.machine_bytes, text::demo_beyond_machine))
    }

    /// Reports whether a plan is available and within the GPU memory that the user entered. A way chosen by the user is
    /// not checked against that memory.
    pub fn takes(&self, plan: &Plan) -> bool {
        let beyond = || self.gpu_bytes.zip(plan.bytes).is_some_and(|(gpu, needed)| needed > gpu);
        plan.refusal.is_none() && !(plan.way.is_webgpu() && beyond())
    }

    /// Returns the ways in the order in which they are tried.
    ///
    /// Exact weights come before compact ones. WebAssembly comes before an adapter that computes on the CPU, because
    /// such an adapter is slower.
    pub const fn order(&self) -> [DemoBackend; 4] {
        match self.gpu {
            Ok(false) => [DemoBackend::WebGpu, DemoBackend::WebGpuHalf, DemoBackend::Cpu, DemoBackend::CpuInt16],
            Ok(true) | Err(_) => {
                [DemoBackend::Cpu, DemoBackend::CpuInt16, DemoBackend::WebGpu, DemoBackend::WebGpuHalf]
            }
        }
    }

    /// Returns the explanation for a way chosen by the user.
    pub const fn why_chosen(&self, way: DemoBackend) -> Key {
        if way.is_webgpu() && matches!(self.gpu, Ok(true)) { text::WHY_CHOSEN_SOFTWARE } else { text::WHY_CHOSEN }
    }

    /// Returns the explanation for a way that was selected automatically.
    pub fn why(&self, way: DemoBackend) -> Text {
        match (&self.gpu, way.is_webgpu()) {
            (Ok(false), true) => text::WHY_GPU.into(),
            (Ok(true), true) => text::WHY_SOFTWARE_ANYWAY.into(),
            (Ok(false), false) => text::WHY_GPU_FULL.into(),
            (Ok(true), false) => text::WHY_SOFTWARE.into(),
            (Err(error), _) => error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use headroom_planner::gpt::{GptShape, presets::Preset};

    use super::*;

    fn named(name: &str) -> GptConfig {
        GptConfig::new(Preset::named(name).expect("a preset").shape(1024, 0.0)).expect("a shape")
    }

    fn machine(gpu: Result<bool, Text>, gpu_bytes: Option<u64>) -> Machine {
        Machine { gpu, gpu_bytes, machine_bytes: None }
    }

    fn open_ways(machine: &Machine, config: &GptConfig) -> Vec<DemoBackend> {
        let plans = machine.plans(config);
        let is_open = |way: &DemoBackend| plans.iter().any(|plan| plan.way == *way && machine.takes(plan));
        machine.order().into_iter().filter(is_open).collect()
    }

    #[test]
    fn fitting_backends_are_tried_exact_first_and_gpu_before_cpu() {
        let all = [DemoBackend::WebGpu, DemoBackend::WebGpuHalf, DemoBackend::Cpu, DemoBackend::CpuInt16];
        assert_eq!(open_ways(&machine(Ok(false), None), &named("gpt2")), all);
        let half_fits = machine(Ok(false), Some(400 << 20));
        assert_eq!(open_ways(&half_fits, &named("gpt2")), all[1..]);
        let software = machine(Ok(true), None);
        assert_eq!(open_ways(&software, &named("gpt2"))[..2], all[2..]);
        let none = machine(Err(text::NO_WEBGPU.into()), None);
        assert_eq!(open_ways(&none, &named("gpt2")), all[2..]);
    }

    #[test]
    fn webassembly_ends_at_its_addresses() {
        let none = machine(Err(text::NO_WEBGPU.into()), None);
        assert_eq!(open_ways(&none, &named("gpt2-xl")), [DemoBackend::CpuInt16], "6 GB in float32");
        let shape = GptShape { n_layer: 96, n_embd: 2560, n_head: 40, ..named("gpt2").shape() };
        assert_eq!(open_ways(&none, &GptConfig::new(shape).expect("a shape")), []);
        let small = Machine { machine_bytes: Some(1 << 20), ..none };
        assert_eq!(open_ways(&small, &named("gpt2")), []);
    }
}
