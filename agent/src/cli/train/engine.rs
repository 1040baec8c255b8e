//! On what a run is computed: planned when the run is put together, allocated when it starts.

use std::{thread, time::Duration};

use headroom_kernels::{
    cuda::CudaError,
    fast::{Trainer, gemm_rate},
    training::Training,
};
use headroom_shared::{
    gpt::{
        GptConfig,
        buffers::{Buffers, cpu_training},
    },
    units::human_size,
};

use super::{Error, options::Request};
use crate::{
    cli::print,
    train::{
        card::{self, Asked, CardError, Chosen, Elsewhere, Place},
        memory::available_bytes,
        settings::{Precision, RunSettings},
    },
};

/// How long the threads multiply before a run, so that its operations can be told as a share of that.
const RATE_TIME: Duration = Duration::from_millis(100);

/// What computes.
#[derive(Debug)]
pub enum Engine {
    /// Threads of the CPU.
    Cpu {
        /// What they take.
        planned: Buffers,
        /// How many.
        threads: usize,
    },
    /// A card.
    Card(Box<Chosen>),
    /// A card that is not here: planned and nothing else.
    Elsewhere(Box<Elsewhere>),
}

/// A model that can learn.
pub struct Ready {
    /// It.
    pub trainer: Box<dyn Training>,
    /// Operations a second that it could make; none where that is not known.
    pub peak_flops: Option<f64>,
}

fn asked<'a>(gpt: &'a GptConfig, run: &'a RunSettings, request: &Request) -> Asked<'a> {
    Asked {
        gpt,
        batch_size: run.batch_size,
        vram_bytes: request.vram_bytes,
        is_float32: run.precision == Some(Precision::Float32),
        recompute: request.recompute,
        attender: request.attender.unwrap_or_default(),
        out_dir: &run.out_dir,
    }
}

impl Engine {
    /// Finds it, and plans the run for it. What a person would not expect is said.
    ///
    /// # Errors
    /// There is no such card, or a tensor is larger than any machine's memory.
    pub fn of(request: &Request, run: &RunSettings, gpt: &GptConfig) -> Result<Self, Error> {
        let is_elsewhere = request.plan && request.vram_bytes.is_some();
        let why = match card::place(run.device, &asked(gpt, run, request)) {
            Ok(Place::Card(chosen)) => {
                if run.precision == Some(Precision::Float16) {
                    print::note(
                        "dtype is float16: the card trains in bfloat16, which is as small and overflows less.\n",
                    );
                }
                return Ok(Self::Card(chosen));
            }
            Ok(Place::Cpu(why)) => why,
            // A plan needs no card.
            Err(error) if is_elsewhere && error.is_without_card() => Some(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        if let (true, Some(vram_bytes), Some(why)) = (request.plan, request.vram_bytes, &why) {
            let size = human_size(vram_bytes);
            print::note(&format!(
                "Planned for a card of {size} that nobody else uses, which is not this machine's: {why}.\n"
            ));
            return Ok(Self::Elsewhere(Box::new(Elsewhere::of(&asked(gpt, run, request), vram_bytes)?)));
        }
        let of_cards = [
            request.vram_bytes.map(|_| "--vram"),
            request.recompute.map(|_| "--recompute"),
            request.attender.map(|_| "--attention"),
        ];
        for option in of_cards.into_iter().flatten() {
            print::note(&format!("{option} is of cards: it changes nothing on the CPU.\n"));
        }
        if let Some(why) = why {
            print::note(&format!("Trains on the CPU: {why}.\n"));
        }
        let threads = request.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        Ok(Self::Cpu { planned: cpu_training(gpt, run.batch_size, threads as u64)?, threads })
    }

    /// What it takes.
    #[must_use]
    pub fn planned_bytes(&self) -> u64 {
        match self {
            Self::Cpu { planned, .. } => planned.bytes(),
            Self::Card(chosen) => chosen.plan.bytes,
            Self::Elsewhere(card) => card.plan.bytes,
        }
    }

    /// As nanoGPT's `device` names it.
    #[must_use]
    pub fn device_name(&self) -> String {
        match self {
            Self::Cpu { .. } => "cpu".to_owned(),
            Self::Card(chosen) => chosen.device_name(),
            Self::Elsewhere(_) => "cuda".to_owned(),
        }
    }

    /// Refuses what does not fit, before anything is touched.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`], or [`Error::Card`].
    pub fn check(&self, gpt: &GptConfig, run: &RunSettings, request: &Request) -> Result<(), Error> {
        match self {
            Self::Cpu { planned, .. } => {
                let planned_bytes = planned.bytes();
                match available_bytes().filter(|&available| available < planned_bytes) {
                    Some(available_bytes) => Err(Error::DoesNotFit { planned_bytes, available_bytes }),
                    None => Ok(()),
                }
            }
            Self::Card(chosen) => Ok(chosen.check(&asked(gpt, run, request))?),
            Self::Elsewhere(card) => Ok(card.check(&asked(gpt, run, request))?),
        }
    }

    /// Why a run ended, with who else is on the card where its memory ran out.
    #[must_use]
    pub fn explained(&self, error: Error) -> Error {
        match self {
            Self::Card(chosen) if error.is_out_of_memory() => {
                Error::OutOfMemory { error: Box::new(error), holders: chosen.holders() }
            }
            _ => error,
        }
    }

    /// Allocates the run, all of it at once.
    ///
    /// # Errors
    /// Its memory was taken by others meanwhile, its threads cannot be started, or the card fails.
    pub fn ready(&mut self, gpt: &GptConfig, run: &RunSettings, request: &Request) -> Result<Ready, Error> {
        match self {
            Self::Cpu { threads, .. } => {
                let trainer = Trainer::new(gpt, run.batch_size, *threads)?;
                let peak_flops = Some(gemm_rate(trainer.team(), RATE_TIME));
                Ok(Ready { trainer: Box::new(trainer), peak_flops })
            }
            Self::Elsewhere(_) => Err(CardError::from(CudaError::NoCard).into()),
            Self::Card(chosen) => {
                let trainer = chosen.trainer(&asked(gpt, run, request))?;
                for note in trainer.products().notes().into_iter().chain(trainer.attention().notes()) {
                    print::note(&format!("{note}\n"));
                }
                let peak_flops = chosen.peak_flops();
                if peak_flops.is_none() {
                    let name = &chosen.device.card().name;
                    print::note(&format!("How fast {name} could be is not known: no utilisation (mfu) is told.\n"));
                }
                Ok(Ready { trainer: Box::new(trainer), peak_flops: peak_flops.map(|peak| peak as f64) })
            }
        }
    }
}
