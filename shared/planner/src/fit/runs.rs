//! Runs of nanoGPT and of other trainers, with the numbers that people change.

use super::{Limit, ScalableRun};
use crate::{
    advice::{self, Knob, MAX_BATCH_SIZE},
    hardware::Device,
    nanogpt::{Settings, Value},
    plan::{self, Request, Room},
    session::{Options, resolve_settings},
    trainers::{self, Run, TrainerRequest, arguments::ArgumentError},
};

/// A run of nanoGPT.
#[derive(Clone, Debug)]
pub struct NanogptRun<'a> {
    settings: &'a Settings,
    options: Options,
}

impl<'a> NanogptRun<'a> {
    /// A run with these settings and options.
    #[must_use]
    pub fn new(settings: &'a Settings, options: &Options) -> Self {
        Self { settings, options: options.clone() }
    }

    fn request(&self, change: Option<(&'static str, u64)>) -> Option<Request> {
        let mut settings = self.settings.clone();
        if let Some((key, value)) = change {
            settings.assign(key, Value::Int(i64::try_from(value).ok()?));
        }
        resolve_settings(settings, &self.options).request
    }
}

/// The knobs of nanoGPT with their values in a request.
fn nanogpt_knobs(request: &Request) -> [Knob; 3] {
    let Request { gpt, train, .. } = request;
    [
        Knob { key: "batch_size", value: train.batch_size, step: 1, max: MAX_BATCH_SIZE },
        Knob { key: "block_size", value: gpt.block_size(), step: 64, max: 1 << 17 },
        Knob { key: "n_layer", value: gpt.n_layer(), step: 1, max: 256 },
    ]
}

impl ScalableRun for NanogptRun<'_> {
    fn knobs(&self) -> Vec<Knob> {
        let knobs = self.request(None).map(|request| nanogpt_knobs(&request));
        // The size of a pretrained model is not that of its key.
        let has_effect = |knob: &Knob| {
            let other = if knob.value > 1 { knob.value / 2 } else { 2 };
            let knobs = self.request(Some((knob.key, other))).map(|request| nanogpt_knobs(&request));
            knobs.into_iter().flatten().any(|changed| changed.key == knob.key && changed.value == other)
        };
        knobs.into_iter().flatten().filter(|knob| knob.key == "batch_size" || has_effect(knob)).collect()
    }

    fn with(&self, key: &'static str, value: u64) -> Option<Room> {
        Some(plan::plan(self.request(Some((key, value)))?).ok()?.room())
    }

    fn device(&self) -> Option<Device> {
        Some(self.options.machine().ok()?.device)
    }

    fn on(&self, device: &Device) -> Result<Self, String> {
        let run = Self { settings: self.settings, options: self.options.with_device(device) };
        let resolved = resolve_settings(self.settings.clone(), &run.options);
        match (resolved.request, resolved.findings.into_iter().next()) {
            (None, Some(finding)) => Err(finding.message.to_string()),
            _ => Ok(run),
        }
    }

    fn own_limit(&self, knob: Knob) -> Option<Limit> {
        if knob.key != "batch_size" {
            return None;
        }
        let plan = plan::plan(self.request(None)?).ok()?;
        let sizes = advice::batch_sizes(self.settings, &self.options, &plan);
        Some(Limit { knob, largest: sizes.largest, may_fit: sizes.may_fit.last().copied() })
    }
}

/// A run of another trainer than nanoGPT.
#[derive(Clone, Debug)]
pub struct TrainerRun<'a> {
    run: &'a Run,
    options: Options,
}

impl<'a> TrainerRun<'a> {
    /// A run with these options.
    #[must_use]
    pub fn new(run: &'a Run, options: &Options) -> Self {
        Self { run, options: options.clone() }
    }

    fn request(&self, run: Run) -> Result<TrainerRequest, String> {
        let machine = self.options.machine().map_err(|error| error.to_string())?;
        TrainerRequest::new(run, machine).map_err(|error| match error {
            ArgumentError::Gpu { cause, .. } => headroom_text::Text::from(cause).to_string(),
            error => error.to_string(),
        })
    }
}

impl ScalableRun for TrainerRun<'_> {
    fn knobs(&self) -> Vec<Knob> {
        self.run.knobs()
    }

    fn candidates(&self, knob: Knob) -> Vec<u64> {
        self.run.candidates(knob)
    }

    fn with(&self, key: &'static str, value: u64) -> Option<Room> {
        let request = self.request(self.run.with(key, value)?).ok()?;
        Some(trainers::plan(request).ok()?.room())
    }

    fn device(&self) -> Option<Device> {
        Some(self.options.machine().ok()?.device)
    }

    fn on(&self, device: &Device) -> Result<Self, String> {
        let run = Self { run: self.run, options: self.options.with_device(device) };
        run.request(self.run.clone()).map(|_| run)
    }
}
