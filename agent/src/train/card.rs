//! Which card a run takes, and how much of its memory: chosen and planned before anything is allocated.

use std::path::Path;

use headroom_kernels::cuda::{
    self, Attention, CublasLt, CudaError, Cudnn, Device, Own, Products, cards, cublaslt, cudnn,
    libraries::{self, Absent},
    shape,
};
use headroom_shared::{
    dtype::Dtype,
    gpt::{
        GptConfig,
        buffers::cuda::{Attender, CudaTraining, Libraries, RESERVE_BYTES, Recompute, size_with},
        tensors::TensorTooLarge,
    },
    hardware::{self, Device as Hardware, context::ModuleLoading},
    protocol::gpu::Process,
    session::ASSUMED_CAPABILITY,
    text,
    units::human_size,
};

use super::{
    device::Wanted,
    shortage::{self, Moment, Shortage},
};
use crate::telemetry;

/// What a run asks of a card.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The model.
    pub gpt: &'a GptConfig,
    /// Sequences a micro-batch.
    pub batch_size: u64,
    /// The card's memory, where it is to be planned as though there were no more.
    pub vram_bytes: Option<u64>,
    /// Whether nothing less than float32 is to be computed with.
    pub is_float32: bool,
    /// What is computed again, in every block; the planner's choice where nobody says.
    pub recompute: Option<Recompute>,
    /// Who is to compute attention.
    pub attender: Attender,
    /// The run's folder, where what was chosen of libraries stays with its checkpoint: a run that goes on computes as
    /// before.
    pub out_dir: &'a Path,
}

/// Why there is no card for a run.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// The driver or the card.
    #[error("{}", shortage::held(error.to_string(), .holders))]
    Cuda {
        /// What it says.
        error: Box<CudaError>,
        /// Who else is on the card, where memory is what it lacks.
        holders: Vec<Process>,
    },
    /// The card computes in 16 bits.
    #[error("dtype is float32, and a card trains in bfloat16, with weights, gradients and moments kept in float32")]
    Float32,
    /// The library that was named to multiply.
    #[error(transparent)]
    CublasLt(Absent),
    /// The library that was asked for to compute attention.
    #[error(transparent)]
    Cudnn(Absent),
    /// A model beyond any card.
    #[error(transparent)]
    Tensor(#[from] TensorTooLarge),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] Box<Shortage>),
}

impl From<CudaError> for CardError {
    fn from(error: CudaError) -> Self {
        Self::Cuda { error: Box::new(error), holders: vec![] }
    }
}

impl CardError {
    /// Whether this machine has no card that any run could take.
    #[must_use]
    pub fn is_without_card(&self) -> bool {
        use CudaError::{CardTooOld, DriverTooOld, NoCard, NoDriver, NotTheDriver};
        let Self::Cuda { error, .. } = self else { return false };
        matches!(**error, NoCard | NoDriver { .. } | NotTheDriver { .. } | DriverTooOld { .. } | CardTooOld { .. })
    }

    /// What to try.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let cpu = text::TRY_CPU;
        match self {
            Self::Cuda { error, .. } => Some(match &**error {
                CudaError::NoDriver { .. } => shortage::joined(&[text::try_driver(cuda::driver::VARIABLE), cpu.into()]),
                CudaError::DriverTooOld { .. } => {
                    shortage::joined(&[text::try_newer_driver(cuda::driver::NEEDED_RELEASE), cpu.into()])
                }
                CudaError::NoSuchCard { .. } => shortage::joined(&[text::TRY_DOCTOR.into(), cpu.into()]),
                CudaError::NoRoomForContext { .. } => shortage::joined(&[text::TRY_END_ITS_HOLDERS.into(), cpu.into()]),
                _ => cpu.to_string(),
            }),
            Self::Float32 => Some("--dtype=bfloat16 trains on the card; --device=cpu computes in float32".to_owned()),
            Self::CublasLt(_) => Some(format!(
                "{}={} multiplies with our own kernels; unset, the library is looked for",
                cublaslt::VARIABLE,
                libraries::OFF
            )),
            Self::Cudnn(_) => {
                Some(format!("--attention=own computes it with our kernels; {} may name the library", cudnn::VARIABLE))
            }
            Self::Tensor(_) => None,
            Self::Memory(shortage) => Some(shortage.hint()),
        }
    }
}

/// Bytes of a card, as a plan is held against them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The whole of its memory, or what is to be taken for it.
    pub total_bytes: u64,
    /// What nobody has of that.
    pub free_bytes: u64,
    /// What is left alone of that.
    pub reserve_bytes: u64,
}

impl Room {
    /// What a run may take.
    #[must_use]
    pub const fn usable_bytes(self) -> u64 {
        self.free_bytes.saturating_sub(self.reserve_bytes)
    }

    /// What the driver says now. Of a card that is to be taken for a smaller one, what is used stays used.
    fn of(device: &Device, vram_bytes: Option<u64>) -> Result<Self, CudaError> {
        let cuda::Memory { free_bytes, total_bytes } = device.memory()?;
        let used_bytes = total_bytes.saturating_sub(free_bytes);
        let total_bytes = vram_bytes.map_or(total_bytes, |vram_bytes| vram_bytes.min(total_bytes));
        let free_bytes = total_bytes.saturating_sub(used_bytes);
        Ok(Self { total_bytes, free_bytes, reserve_bytes: RESERVE_BYTES })
    }
}

/// A card that a run can take.
#[derive(Debug)]
pub struct Chosen {
    /// It, opened: its context is what was taken of its memory.
    pub device: Device,
    /// What was free then.
    pub room: Room,
    /// What the run is to take; the least there is where that does not fit.
    pub plan: CudaTraining,
    /// Whether it fits.
    pub fits: bool,
    /// Who multiplies matrices; it goes to the trainer.
    products: Box<dyn Products>,
    /// Who computes attention; likewise.
    attention: Box<dyn Attention>,
    /// Why that is not cuBLASLt.
    pub why_own: Option<Absent>,
}

/// Where a run is computed.
#[derive(Debug)]
pub enum Place {
    /// On the CPU, and why not on a card, where a card would have been taken.
    Cpu(Option<String>),
    /// On a card.
    Card(Box<Chosen>),
}

/// A card that is not here, of so much memory, and what a run would take of it.
#[derive(Debug)]
pub struct Elsewhere {
    /// All of its memory, and what a context would leave.
    pub room: Room,
    /// What the run is to take; the least there is where that does not fit.
    pub plan: CudaTraining,
    /// Whether it fits.
    pub fits: bool,
}

impl Elsewhere {
    /// Plans a run for a card with `vram_bytes` that nobody else uses, with products of our own kernels.
    ///
    /// # Errors
    /// No card trains that run, or a model beyond any card.
    pub fn of(asked: &Asked<'_>, vram_bytes: u64) -> Result<Self, CardError> {
        shape::check(asked.gpt)?;
        if asked.is_float32 {
            return Err(CardError::Float32);
        }
        let context = Hardware::custom(vram_bytes, ASSUMED_CAPABILITY).context(ModuleLoading::Lazy);
        let free_bytes = vram_bytes.saturating_sub(context.bytes);
        let room = Room { total_bytes: vram_bytes, free_bytes, reserve_bytes: RESERVE_BYTES };
        let libraries = Libraries { attender: asked.attender, ..Libraries::NONE };
        let (plan, fits) = planned(asked, room.usable_bytes(), libraries)?;
        Ok(Self { room, plan, fits })
    }

    /// Refuses a plan that does not fit.
    ///
    /// # Errors
    /// [`CardError::Memory`].
    pub fn check(&self, asked: &Asked<'_>) -> Result<(), CardError> {
        if self.fits {
            return Ok(());
        }
        let card = format!("a card of {}", human_size(self.room.total_bytes));
        Err(shortage(card, &self.plan, self.room, Moment::Plan, asked, None).into())
    }
}

/// Finds the card for a run: the one that is named, else the first that can. Where one could and has no room, the run is
/// planned for it all the same, so that it can be said what is missing.
///
/// # Errors
/// A card is asked for and there is none that can; a model beyond any card.
pub fn place(wanted: Wanted, asked: &Asked<'_>) -> Result<Place, CardError> {
    let card = |chosen| Ok(Place::Card(Box::new(chosen)));
    match wanted {
        Wanted::Cpu => Ok(Place::Cpu(None)),
        Wanted::Cuda(_) if asked.is_float32 => Err(CardError::Float32),
        Wanted::Cuda(Some(index)) => card(open(index, asked)?),
        Wanted::Cuda(None) => card(first(asked)?),
        Wanted::Auto => match first(asked) {
            Ok(_) if asked.is_float32 => Ok(Place::Cpu(Some(CardError::Float32.to_string()))),
            Ok(chosen) => card(chosen),
            // A card that others fill is one that can: its owner is to know.
            Err(CardError::Cuda { error, .. }) if !matches!(*error, CudaError::NoRoomForContext { .. }) => {
                Ok(Place::Cpu(Some(error.to_string())))
            }
            Err(error) => Err(error),
        },
    }
}

/// The first card that can, with room before those without.
fn first(asked: &Asked<'_>) -> Result<Chosen, CardError> {
    shape::check(asked.gpt)?;
    let (mut full, mut refused) = (None, None);
    for card in cards()? {
        match open(card.index, asked) {
            Ok(chosen) if chosen.fits => return Ok(chosen),
            Ok(chosen) => full = full.or(Some(chosen)),
            Err(error @ CardError::Cuda { .. }) => refused = refused.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    full.ok_or_else(|| refused.unwrap_or_else(|| CudaError::NoCard.into()))
}

fn open(index: u32, asked: &Asked<'_>) -> Result<Chosen, CardError> {
    shape::check(asked.gpt)?;
    let device = Device::open(index).map_err(|error| {
        let is_full = matches!(error, CudaError::NoRoomForContext { .. });
        let uuid = || cards().ok()?.into_iter().find(|card| card.index == index).map(|card| card.uuid);
        let holders = is_full.then(|| telemetry::holders(&uuid()?)).flatten().unwrap_or_default();
        CardError::Cuda { error: Box::new(error), holders }
    })?;
    let (products, why_own): (Box<dyn Products>, _) = match CublasLt::find(&device, Some(asked.out_dir)) {
        Ok(library) => (Box::new(library), None),
        Err(absent) if absent.is_error() => return Err(CardError::CublasLt(absent)),
        Err(absent) => (Box::new(Own), Some(absent)),
    };
    let attention: Box<dyn Attention> = match asked.attender {
        Attender::Own => Box::new(Own),
        Attender::Cudnn => Box::new(Cudnn::find(&device, Some(asked.out_dir)).map_err(CardError::Cudnn)?),
    };
    // After the libraries are there, which have memory of their own.
    let room = Room::of(&device, asked.vram_bytes)?;
    let libraries = Libraries { multiplier: products.multiplier(), attender: attention.attender() };
    let (plan, fits) = planned(asked, room.usable_bytes(), libraries)?;
    Ok(Chosen { device, room, plan, fits, products, attention, why_own })
}

/// What the run is to take, and whether there is so much.
fn planned(asked: &Asked<'_>, usable_bytes: u64, libraries: Libraries) -> Result<(CudaTraining, bool), TensorTooLarge> {
    let recompute = match asked.recompute {
        Some(level) => vec![level; usize::try_from(asked.gpt.n_layer()).unwrap_or(usize::MAX)],
        None => size_with(asked.gpt, asked.batch_size, usable_bytes, libraries)?.recompute,
    };
    let plan = CudaTraining::with_libraries(asked.gpt, asked.batch_size, recompute, libraries)?;
    let fits = plan.bytes <= usable_bytes;
    Ok((plan, fits))
}

impl Chosen {
    /// Its name as a run's `device`.
    #[must_use]
    pub fn device_name(&self) -> String {
        format!("cuda:{}", self.device.card().index)
    }

    /// Operations a second that its tensor cores can in bfloat16; none where the card is in no table of ours.
    #[must_use]
    pub fn peak_flops(&self) -> Option<u64> {
        let card = self.device.card();
        hardware::reported(&card.name, Some(card.total_bytes))?.peak_flops(Dtype::Bfloat16)
    }

    /// Refuses a plan that does not fit.
    ///
    /// # Errors
    /// [`CardError::Memory`].
    pub fn check(&self, asked: &Asked<'_>) -> Result<(), CardError> {
        if self.fits { Ok(()) } else { Err(self.shortage(self.room, Moment::Plan, asked).into()) }
    }

    /// Who multiplies matrices, for the person who starts the run.
    #[must_use]
    pub fn multiplied_by(&self) -> String {
        self.products.name()
    }

    /// Who computes attention, likewise: before the run begins, who is tried.
    #[must_use]
    pub fn attention_by(&self) -> String {
        self.attention.name()
    }

    /// The trainer, with everything that was planned.
    ///
    /// # Errors
    /// [`CardError::Memory`] where memory was taken since it was planned, and then nothing is; else the card.
    pub fn trainer(&mut self, asked: &Asked<'_>) -> Result<cuda::Trainer, CardError> {
        let products = std::mem::replace(&mut self.products, Box::new(Own));
        let attention = std::mem::replace(&mut self.attention, Box::new(Own));
        cuda::Trainer::with(&self.device, asked.gpt, self.plan.clone(), products, attention).map_err(
            |error| match error {
                CudaError::OutOfDeviceMemory { free_bytes, .. } => {
                    // What the driver said is free then; where it was enough, it does not lie together.
                    let room = Room::of(&self.device, asked.vram_bytes).unwrap_or(Room { free_bytes, ..self.room });
                    self.shortage(room, Moment::Allocation, asked).into()
                }
                error => error.into(),
            },
        )
    }

    /// Who else is on the card; nobody where the driver does not say.
    #[must_use]
    pub fn holders(&self) -> Vec<Process> {
        telemetry::holders(&self.device.card().uuid).unwrap_or_default()
    }

    fn shortage(&self, room: Room, moment: Moment, asked: &Asked<'_>) -> Box<Shortage> {
        let card = self.device.card();
        let name = format!("{} (cuda:{})", card.name, card.index);
        shortage(name, &self.plan, room, moment, asked, telemetry::holders(&card.uuid))
    }
}

fn shortage(
    card: String,
    plan: &CudaTraining,
    room: Room,
    moment: Moment,
    asked: &Asked<'_>,
    holders: Option<Vec<Process>>,
) -> Box<Shortage> {
    let usable_bytes = room.usable_bytes();
    let least = size_with(asked.gpt, asked.batch_size, usable_bytes, plan.libraries);
    Box::new(Shortage {
        card,
        needed_bytes: plan.bytes,
        room,
        moment,
        is_whole: plan.recompute.iter().all(|&level| level == Recompute::Block),
        is_least: least.is_ok_and(|least| least.bytes >= plan.bytes),
        batch_size: asked.batch_size,
        fitting_batch_size: shortage::fitting_batch_size(asked, usable_bytes, plan.libraries),
        holders,
    })
}

#[cfg(test)]
mod tests {
    use headroom_shared::text::{Text, size, table};

    use super::*;

    /// Errors of cards are the kernels' own sentences, which the texts repeat.
    #[test]
    fn what_a_card_lacks_is_said_in_every_language() {
        let name = || "RTX 4070".to_owned();
        let reason = "libcuda.so.1: no such file";
        let errors = [
            (CudaError::NoDriver { reason: reason.to_owned() }, text::card_no_driver(reason)),
            (CudaError::NoCard, text::CARD_NONE.into()),
            (
                CudaError::NotTheDriver { library: "libcuda.so".to_owned(), reason: reason.to_owned() },
                text::card_not_driver(cuda::driver::VARIABLE, "libcuda.so", reason),
            ),
            (
                CudaError::DriverTooOld { found: cuda::driver::Version(11_080) },
                text::card_driver_too_old("11.8", "12.4", cuda::driver::NEEDED_RELEASE),
            ),
            (
                CudaError::CardTooOld { name: name(), capability: cuda::Capability { major: 7, minor: 5 } },
                text::card_too_old(name(), "7.5", "8.0"),
            ),
            (CudaError::NoSuchCard { index: 3, n_cards: 1 }, text::card_not_there(3_u64, 1_u64)),
            (
                CudaError::NoRoomForContext { name: name(), total_bytes: 12 << 30 },
                text::card_no_room(name(), size(12 << 30)),
            ),
            (
                CudaError::OutOfDeviceMemory { requested_bytes: 5 << 30, free_bytes: 1 << 30 },
                text::card_out_of_memory(size(5 << 30), size(1 << 30)),
            ),
        ];
        for (error, text) in errors {
            assert_eq!(CardError::from(error).to_string(), text.to_string());
            is_said(&text);
        }
        let code = "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700)";
        for culprit in [
            text::culprit_kernel("adamw"),
            text::culprit_among(12_u64, "adamw", "HEADROOM_CUDA_SYNC=1"),
            text::CULPRIT_NOBODY.into(),
        ] {
            is_said(&text::card_fault(code, culprit, "kernels/src/cuda/device.rs:7"));
        }
    }

    /// The sentence becomes what its text says in each language.
    #[track_caller]
    fn is_said(text: &Text) {
        for language in ["zh", "ja", "de"] {
            let table = table(language);
            assert_eq!(table.translated(&text.to_string()), table.say(text), "{language}");
        }
    }
}
