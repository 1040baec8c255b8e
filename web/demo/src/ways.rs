//! What each way to run a model takes, which of them are open, and which is best.

use headroom_shared::{
    demo::{Plan, Way},
    gpt::{
        GptConfig,
        buffers::{self, Buffers, Storage, inference::Inference},
        tensors::{TensorTooLarge, parameters},
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
            let no_gpu = self.gpu.is_err().then(|| text::DEMO_NO_GPU.into());
            return no_gpu.or_else(|| beyond(self.gpu_bytes, text::demo_beyond_gpu));
        }
        // A parameter on its way in lies there besides.
        let largest = parameters(config).iter().filter_map(|parameter| elements(config, parameter.tensor)).max();
        let staging = largest.unwrap_or(0).saturating_mul(4).saturating_add(PROGRAM_BYTES);
        let room = WASM_BYTES.saturating_sub(staging);
        beyond(Some(room), text::demo_beyond_wasm).or_else(|| beyond(self.machine_bytes, text::demo_beyond_machine))
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

/// What is said where a person chose the way.
pub const CHOSEN: Key = text::WHY_CHOSEN;

fn elements(config: &GptConfig, tensor: headroom_shared::gpt::tensors::Tensor) -> Option<u64> {
    let dims = headroom_shared::gpt::tensors::Dims::without_card(config, 1);
    tensor.shape(&dims).as_slice().iter().try_fold(1_u64, |n, &axis| n.checked_mul(axis))
}
