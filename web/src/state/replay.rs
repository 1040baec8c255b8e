//! The page of recordings: an opened recording, its replay on a GPU, and what else fits.

use std::sync::Arc;

use headroom_planner::{
    hardware::{Device, by_popularity},
    link,
    memory::message::TorchVersion,
    plan::{Fit, Plan},
    recording::{self, DecodeError, Decoder, Recording, ReplayRequest, SizeError, Variable},
    session::Options,
};
use headroom_text::Text;
use leptos::prelude::*;

use super::{
    course::{Drawn, PlanWithTimeline},
    entry::{Fault, Faults},
    gpu::{GpuDraft, OnGpu},
    memo::memo,
    read_settings,
    run_answer::{Obstacle, RunAnswer},
};
use crate::text::{self, say, t};

/// The ending of a recording's name.
pub const ENDING: &str = ".headroom";

/// The largest file that the page opens, in bytes. A recording of a large model has a few hundred kilobytes.
pub const MAX_FILE_BYTES: u64 = 256 << 20;

/// A recording with the name of its file, at one of its sizes. Two are equal if they are the same allocation.
#[derive(Clone, Debug)]
pub struct OpenRecording {
    name: Arc<str>,
    run: Arc<Recording>,
}

impl PartialEq for OpenRecording {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.run, &other.run)
    }
}

impl OpenRecording {
    /// Reads a file.
    ///
    /// # Errors
    /// The bytes are no recording.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::default();
        decoder.push(bytes)?;
        Ok(Self { name: name.into(), run: decoder.finish()?.into() })
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The recording.
    pub fn recording(&self) -> &Recording {
        &self.run
    }

    /// The run at another size of its series.
    ///
    /// # Errors
    /// The recording has no run at this size.
    pub fn at(&self, size: u64) -> Result<Self, SizeError> {
        let variable = self.run.series().map_or(Variable::BatchSize, |series| series.variable);
        Ok(Self { name: Arc::clone(&self.name), run: self.run.at(variable, size)?.into() })
    }

    /// The largest size of the series that fits; `None` if none fits, or without a series.
    pub fn largest(&self, options: &Options) -> Option<u64> {
        self.run.largest_that_fits(&options.machine().ok()?)
    }

    /// Replays it on the GPU of the options.
    fn replayed(&self, options: &Options) -> Result<Plan<ReplayRequest>, Obstacle> {
        let mut options = options.clone();
        // A version that cannot be read keeps the default.
        let torch = &self.recording().origin.torch;
        if torch.parse::<TorchVersion>().is_ok() {
            options.torch.clone_from(torch);
        }
        let machine = options.machine().map_err(Obstacle::Machine)?;
        recording::plan(self.recording(), machine).map_err(|error| Obstacle::Run(error.to_string()))
    }

    /// Whether it fits on another GPU of the table, and the memory that is left there in bytes.
    pub fn on(&self, device: &'static Device, options: &Options) -> Option<GpuResult> {
        let plan = self.replayed(&options.with_device(device)).ok()?;
        Some(GpuResult { device, fit: plan.fit(), headroom_bytes: plan.headroom_bytes })
    }
}

/// A recording on a GPU of the table.
#[derive(Clone, Copy, Debug)]
pub struct GpuResult {
    /// The GPU.
    pub device: &'static Device,
    /// Whether the run fits.
    pub fit: Fit,
    /// Memory left at the peak in bytes; negative if bytes are missing.
    pub headroom_bytes: i64,
}

/// The GPUs on which recordings are replayed, the most common first, from the index `start`, at most `n`.
pub fn gpus(of: &OpenRecording, options: &Options, start: usize, n: usize) -> Vec<GpuResult> {
    by_popularity().skip(start).take(n).filter_map(|(_, device)| of.on(device, options)).collect()
}

/// The GPU with the least memory on which the run fits with certainty.
pub fn smallest(results: &[GpuResult]) -> Option<&GpuResult> {
    results.iter().filter(|result| result.fit == Fit::Fits).min_by_key(|result| result.device.total_bytes)
}

/// The memory that expandable segments save, in bytes; `None` if they are on, or do not help.
pub fn expandable_saves(of: &OpenRecording, options: &Options) -> Option<(Fit, i64)> {
    if options.expandable_segments {
        return None;
    }
    let before = of.replayed(options).ok()?;
    let after = of.replayed(&Options { expandable_segments: true, ..options.clone() }).ok()?;
    let helps = !before.fits && after.headroom_bytes > before.headroom_bytes;
    helps.then(|| (after.fit(), after.headroom_bytes))
}

/// The user's input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplaySession {
    /// The opened recording.
    pub file: Option<OpenRecording>,
    /// The GPU and the allocator's settings.
    pub options: Options,
}

impl ReplaySession {
    /// The fragment, without `#`, of the GPU and the settings. A link has no recording.
    pub fn fragment(&self) -> String {
        link::encode(&read_settings(""), &self.options)
    }

    /// Opens the GPU and the settings of a fragment. Returns whether it names a GPU.
    pub fn open(&mut self, fragment: &str) -> bool {
        let fragment = fragment.trim_start_matches('#');
        let names_gpu = ["gpu=", "vram="].iter().any(|key| fragment.split('&').any(|part| part.starts_with(key)));
        if fragment.starts_with(|c: char| c.is_ascii_digit()) {
            self.options = link::decode(fragment).options;
        }
        names_gpu
    }
}

fn planned(session: &ReplaySession) -> Result<Drawn<ReplayRequest>, Obstacle> {
    let file = session.file.as_ref().ok_or_else(|| Obstacle::Run(t(text::REPLAY_NOTHING_OPEN).to_owned()))?;
    // A recording has each of its evaluations once.
    Ok(PlanWithTimeline::of(file.replayed(&session.options)?, 1).into())
}

/// The signals of the page.
#[derive(Clone, Copy)]
pub struct ReplayPage {
    /// The user's input.
    pub session: RwSignal<ReplaySession>,
    /// The replay.
    pub answer: RunAnswer<ReplayRequest>,
    /// The largest size of the series that fits; `None` if none fits, or without a series.
    pub largest: Memo<Option<u64>>,
    /// A notice about a file that was not opened.
    pub notice: RwSignal<Option<Text>>,
}

impl ReplayPage {
    /// Creates the signals, without a recording.
    pub fn new() -> Self {
        let session = RwSignal::new(ReplaySession::default());
        let answer = RunAnswer::new(move || session.with(planned));
        let largest = memo(move || session.with(|session| session.file.as_ref()?.largest(&session.options)));
        Self { session, answer, largest, notice: RwSignal::new(None) }
    }

    /// Opens a file and returns whether it is a recording. An invalid file leaves the open one as it is.
    pub fn open(self, name: &str, bytes: &[u8]) -> bool {
        match OpenRecording::read(name, bytes) {
            Ok(file) => {
                self.session.update(|session| session.file = Some(file));
                self.answer.reset();
                self.notice.set(None);
                true
            }
            Err(error) => {
                self.notice.set(Some(text::replay_not_read(name, error.to_string())));
                false
            }
        }
    }

    /// Shows the run at a size, or returns what is expected.
    pub fn set_size(self, size: u64) -> Fault {
        let file = self.session.with_untracked(|session| session.file.clone())?;
        match file.at(size) {
            Ok(file) => {
                self.session.update(|session| session.file = Some(file));
                None
            }
            Err(_) => Some(text::REPLAY_NO_SIZE),
        }
    }

    /// Shows the run at a size that a button names.
    pub fn choose_size(self, size: u64) {
        self.set_size(size);
        self.answer.faults.reset();
    }

    /// Variable of the series, recorded sizes and shown size; `None` without a series.
    pub fn size(self) -> Option<(Variable, Vec<u64>, u64)> {
        self.session.with(|session| {
            let run = session.file.as_ref()?.recording();
            let series = run.series()?;
            Some((series.variable, series.sizes.clone(), run.size()?))
        })
    }
}

impl OnGpu for ReplayPage {
    fn options(self) -> Options {
        self.session.with(|session| session.options.clone())
    }

    fn edit_options(self, change: impl FnOnce(&mut Options)) {
        self.session.update(|session| change(&mut session.options));
    }

    fn commit_options(self, change: impl FnOnce(&mut Options)) {
        self.edit_options(change);
        self.answer.faults.reset();
    }

    fn draft(self) -> RwSignal<Option<GpuDraft>> {
        self.answer.draft
    }

    fn faults(self) -> Faults {
        self.answer.faults
    }

    fn gpu_bytes(self) -> Option<u64> {
        self.answer.gpu_bytes()
    }

    fn gpu_fault(self) -> Option<Text> {
        self.answer.gpu_fault()
    }
}

/// The recording in one line: its program, PyTorch's version and the number of steps.
pub fn summary(of: &OpenRecording) -> String {
    let origin = &of.recording().origin;
    say(&text::replay_summary(origin.program.as_str(), origin.torch.as_str(), origin.steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tensors::ShownMoment;

    const SERIES: &[u8] = include_bytes!("../../../tests/golden/recordings/series/gpt2.headroom");
    const NANOGPT: &[u8] = include_bytes!("../../../tests/golden/recordings/nanogpt_124m.headroom");

    fn opened() -> OpenRecording {
        OpenRecording::read("train.headroom", NANOGPT).expect("a recording")
    }

    fn on(gpu: &str) -> Options {
        Options { gpu: gpu.to_owned(), ..Options::default() }
    }

    #[test]
    fn a_replay_is_that_of_the_planner() {
        let file = opened();
        let plan = file.replayed(&on("RTX 3060")).expect("a plan");
        let machine = Options { torch: file.recording().origin.torch.clone(), ..on("RTX 3060") }.machine();
        let of_planner = recording::plan(file.recording(), machine.expect("a GPU")).expect("a plan");
        assert_eq!((plan.headroom_bytes, plan.fits), (of_planner.headroom_bytes, of_planner.fits));
    }

    #[test]
    fn gpus_agree_with_the_replay_and_the_smallest_fits() {
        let file = opened();
        let results = gpus(&file, &Options::default(), 0, usize::MAX);
        assert_eq!(results.len(), by_popularity().count());
        let smallest = smallest(&results).expect("a GPU");
        assert!(file.replayed(&on(&smallest.device.name)).expect("a plan").fits);
        let smaller = results.iter().filter(|result| result.device.total_bytes < smallest.device.total_bytes);
        assert!(smaller.into_iter().all(|result| result.fit != Fit::Fits));
    }

    #[test]
    fn tensors_of_a_moment_have_their_source_lines() {
        let planned = planned(&ReplaySession { file: Some(opened()), options: on("RTX 3060") }).expect("a plan");
        let moment = ShownMoment::of(&*planned, planned.first_shown(), true).expect("a moment");
        assert!(
            moment.live.lines.iter().any(|line| line.stored.source().contains("model.py")),
            "{:?}",
            moment.live.lines
        );
    }

    #[test]
    fn a_link_has_the_gpu_and_the_settings() {
        let mut session = ReplaySession { file: None, options: on("RTX 3060") };
        session.options.expandable_segments = true;
        let mut again = ReplaySession::default();
        assert!(again.open(&session.fragment()));
        assert_eq!(again.options.gpu, "RTX 3060");
        assert!(again.options.expandable_segments);
        assert!(!ReplaySession::default().open("#answer"));
    }

    #[test]
    fn series_is_shown_at_any_size_and_names_the_largest() {
        let owner = Owner::new();
        owner.set();
        let page = ReplayPage::new();
        assert!(page.open("train.headroom", NANOGPT));
        assert_eq!(page.size(), None);
        assert!(page.open("gpt2.headroom", SERIES));
        assert_eq!(page.size(), Some((Variable::BatchSize, vec![2, 4, 6], 2)));
        let file = || page.session.get_untracked().file.expect("a recording");
        let largest = file().largest(&on("RTX 3060")).expect("a size fits");
        assert_eq!(page.set_size(largest), None);
        assert!(file().replayed(&on("RTX 3060")).expect("a plan").fits);
        assert_eq!(page.set_size(largest + 1), None);
        assert!(!file().replayed(&on("RTX 3060")).expect("a plan").fits);
        assert_eq!(file().largest(&on("RTX 3060")), Some(largest));
        assert_eq!(page.set_size(u64::MAX), Some(text::REPLAY_NO_SIZE));
        assert_eq!(page.size().map(|(_, _, size)| size), Some(largest + 1));
    }

    #[test]
    fn an_invalid_file_keeps_the_open_one() {
        let owner = Owner::new();
        owner.set();
        let page = ReplayPage::new();
        assert!(page.open("train.headroom", NANOGPT));
        assert!(!page.open("photo.headroom", &NANOGPT[..NANOGPT.len() / 2]));
        assert!(say(&page.notice.get().expect("a notice")).contains("photo.headroom"));
        assert_eq!(page.session.get().file.expect("the first file").name(), "train.headroom");
    }
}
