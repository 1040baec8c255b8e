//! What each way to run a model takes, which of them are open, and which is best.

use headroom_kernels::layout::Layout;
use headroom_shared::{
    demo::{Plan, Way},
    gpt::{
        GptConfig,
        buffers::{self, Buffers, Storage, inference::Inference},
        tensors::TensorTooLarge,
    },
    text::{self, Key, Text},
};

/// What WebAssembly's addresses reach.
const WASM_BYTES: u64 = 1 << 32;
/// What the program itself takes of them, with room for pieces of files and messages.
const PROGRAM_BYTES: u64 = 64 << 20;

/// What there is to run on.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// WebGPU: whether its adapter computes on the CPU; or why there is none.
    pub gpu: Result<bool, Text>,
    /// The GPU's memory, where a person said it.
    pub gpu_bytes: Option<u64>,
    /// The machine's, where the browser said it.
    pub machine_bytes: Option<u64>,
}

/// The settings of an engine on WebGPU.
pub const fn inference(way: Way) -> Inference {
    Inference { half: matches!(way, Way::WebGpuHalf), attention: true }
}

/// How one on the CPU keeps its matrices.
pub const fn storage(way: Way) -> Storage {
    if way.is_compact() { Storage::Int16 } else { Storage::F32 }
}

fn buffers_of(way: Way, config: &GptConfig) -> Result<Buffers, TensorTooLarge> {
    if way.is_webgpu() { inference(way).buffers(config) } else { buffers::decoder(config, storage(way)) }
}

impl Machine {
    /// What each way takes, and why some are closed.
    pub fn plans(&self, config: &GptConfig) -> Vec<Plan> {
        Way::ALL.map(|way| self.plan(way, config)).into()
    }

    fn plan(&self, way: Way, config: &GptConfig) -> Plan {
        let bytes = match buffers_of(way, config) {
            Ok(list) => list.bytes(),
            Err(error) => return Plan { way, bytes: None, refusal: Some(error.text()) },
        };
        Plan { way, bytes: Some(bytes), refusal: self.refusal(way, bytes, config) }
    }

    fn refusal(&self, way: Way, bytes: u64, config: &GptConfig) -> Option<Text> {
        let beyond = |most: Option<u64>, said: fn(text::Part, text::Part) -> Text| {
            most.filter(|&most| bytes > most).map(|most| said(text::size(bytes - most), text::size(most)))
        };
        if way.is_webgpu() {
            // Why there is none is said once, where it counts.
            return self.gpu.is_err().then(|| text::DEMO_NO_GPU.into());
        }
        // A parameter on its way in lies there besides.
        let largest = Layout::new(config).map_or(0, |layout| layout.largest() as u64);
        let staging = largest.saturating_mul(4).saturating_add(PROGRAM_BYTES);
        let room = WASM_BYTES.saturating_sub(staging);
        beyond(Some(room), text::demo_beyond_wasm).or_else(|| beyond(self.machine_bytes, text::demo_beyond_machine))
    }

    /// Whether a plan is open, and within the GPU's memory where that was said. A person who chooses it may know better.
    pub fn takes(&self, plan: &Plan) -> bool {
        let beyond = || self.gpu_bytes.zip(plan.bytes).is_some_and(|(gpu, needed)| needed > gpu);
        plan.refusal.is_none() && !(plan.way.is_webgpu() && beyond())
    }

    /// The ways in the order in which they are tried, and what is to be said of the first kind.
    ///
    /// Weights as they are come before smaller ones; and an adapter that computes on the CPU is slower at it than
    /// WebAssembly.
    pub const fn order(&self) -> [Way; 4] {
        match self.gpu {
            Ok(false) => [Way::WebGpu, Way::WebGpuHalf, Way::Cpu, Way::CpuInt16],
            Ok(true) | Err(_) => [Way::Cpu, Way::CpuInt16, Way::WebGpu, Way::WebGpuHalf],
        }
    }

    /// What is said where a person chose the way.
    pub const fn why_chosen(&self, way: Way) -> Key {
        if way.is_webgpu() && matches!(self.gpu, Ok(true)) { text::WHY_CHOSEN_SOFTWARE } else { text::WHY_CHOSEN }
    }

    /// Why a way was taken, where nobody chose it.
    pub fn why(&self, way: Way) -> Text {
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
    use headroom_shared::gpt::{GptShape, presets::Preset};

    use super::*;

    fn named(name: &str) -> GptConfig {
        GptConfig::new(Preset::named(name).expect("a preset").shape(1024, 0.0)).expect("a shape")
    }

    fn machine(gpu: Result<bool, Text>, gpu_bytes: Option<u64>) -> Machine {
        Machine { gpu, gpu_bytes, machine_bytes: None }
    }

    fn open_ways(machine: &Machine, config: &GptConfig) -> Vec<Way> {
        let plans = machine.plans(config);
        let is_open = |way: &Way| plans.iter().any(|plan| plan.way == *way && machine.takes(plan));
        machine.order().into_iter().filter(is_open).collect()
    }

    #[test]
    fn what_fits_is_tried_exact_first_and_a_real_gpu_before_the_cpu() {
        let all = [Way::WebGpu, Way::WebGpuHalf, Way::Cpu, Way::CpuInt16];
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
        assert_eq!(open_ways(&none, &named("gpt2-xl")), [Way::CpuInt16], "6 GB in float32");
        let shape = GptShape { n_layer: 96, n_embd: 2560, n_head: 40, ..named("gpt2").shape() };
        assert_eq!(open_ways(&none, &GptConfig::new(shape).expect("a shape")), []);
        let small = Machine { machine_bytes: Some(1 << 20), ..none };
        assert_eq!(open_ways(&small, &named("gpt2")), []);
    }
}
