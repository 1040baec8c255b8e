//! The demo's state, built from its worker's messages.

mod attention;
mod settings;
mod stored_settings;

use std::sync::Arc;

use headroom_planner::gpt::tensors::Category;
use headroom_protocol::demo::{
    DemoBackend, End, Failure, FailureKind, Maps, ModelPlans, ModelReport, Plan, PromptReport, TensorSummary, Token,
    TokenAttention, TokenReport, WorkerResponse,
};
use headroom_text::decimal;

use super::format;
use crate::text::{self, Key, Text, say, t};

pub use attention::{Attended, Head, Map, share};
pub use settings::Settings;
pub use stored_settings::StoredSettings;

/// The progress of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Stage {
    /// The program loads, and a device is requested.
    #[default]
    Starting,
    /// Weights load: bytes read, and bytes in total.
    Loading(u64, u64),
    /// The model is ready to generate text.
    Ready,
    /// The model generates text.
    Writing,
    /// No model can run.
    Failed(Failure),
}

/// A piece of the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The characters that it adds.
    pub words: String,
    /// For a generated token: its alternatives.
    pub token: Option<Token>,
}

impl Piece {
    /// The token's name. A part of a character adds no text, and has a name.
    fn name(&self) -> &str {
        let chosen = self.token.as_ref().and_then(|token| token.candidates.iter().find(|(id, ..)| *id == token.id));
        chosen.map_or(&self.words, |(_, name, _)| name)
    }
}

/// The demo's state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demo {
    /// The progress of the model.
    pub stage: Stage,
    /// The model and its available backends.
    pub opened: Option<ModelPlans>,
    /// The device in use, and its allocations.
    pub ready: Option<ModelReport>,
    /// The number of texts started, which distinguishes one from the next.
    pub n_texts: u32,
    /// The prompt, then the generated text.
    pub pieces: Vec<Piece>,
    /// The number of prompt tokens, if it exceeds the model's context.
    pub cut_from: Option<u64>,
    /// The reason why the text ended.
    pub end: Option<End>,
    /// The error in the prompt.
    pub refused: Option<Failure>,
    /// The attention maps of all heads.
    pub maps: Option<Arc<Maps>>,
    /// The attention of the token that was requested last.
    pub attention: Option<TokenAttention>,
    /// Tokens of this text, and the microseconds that they took.
    pub pace: (u32, u64),
}

impl Demo {
    /// Applies a message from the worker.
    pub fn hear(&mut self, tell: WorkerResponse) {
        match tell {
            WorkerResponse::Opened(opened) => {
                if opened.way.is_some() {
                    self.stage = Stage::Loading(0, 0);
                }
                self.opened = Some(opened);
            }
            WorkerResponse::Progress { read_bytes, all_bytes } => self.stage = Stage::Loading(read_bytes, all_bytes),
            WorkerResponse::Ready(ready) => {
                self.ready = Some(ready);
                self.stage = Stage::Ready;
            }
            WorkerResponse::Began(began) => self.begin(began),
            WorkerResponse::Wrote(wrote) => self.add(wrote),
            WorkerResponse::Ended(end) => {
                self.end = Some(end);
                self.stage = Stage::Ready;
            }
            WorkerResponse::Maps(maps) => self.maps = Some(Arc::new(maps)),
            WorkerResponse::Attention(attention) => self.attention = Some(attention),
            WorkerResponse::Failed(failure) => self.fail(failure),
        }
    }

    /// Applies a failure. An invalid prompt leaves the model as it is.
    pub fn fail(&mut self, failure: Failure) {
        if failure.kind == FailureKind::Prompt {
            self.refused = Some(failure);
            self.stage = Stage::Ready;
        } else {
            self.stage = Stage::Failed(failure);
        }
    }

    fn begin(&mut self, began: PromptReport) {
        self.cut_from = Some(began.n_tokens).filter(|all| *all > began.tokens.len() as u64);
        self.pieces = began.tokens.into_iter().map(|words| Piece { words, token: None }).collect();
        self.n_texts += 1;
        (self.end, self.refused, self.maps, self.attention, self.pace) = (None, None, None, None, (0, 0));
        self.stage = Stage::Writing;
    }

    fn add(&mut self, wrote: TokenReport) {
        self.pace = (wrote.n_tokens, wrote.micros);
        self.pieces
            .extend(wrote.tokens.into_iter().map(|token| Piece { words: token.adds.clone(), token: Some(token) }));
    }

    /// The index of the token that is shown: the selected one, else the last one if it was generated.
    pub fn looked_at(&self, selected: Option<usize>) -> Option<usize> {
        let last = self.pieces.len().checked_sub(1)?;
        selected.filter(|index| *index <= last).or_else(|| self.pieces[last].token.is_some().then_some(last))
    }

    /// The numbers of layers and heads.
    pub fn shape(&self) -> (usize, usize) {
        let narrow = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        self.opened.as_ref().map_or((1, 1), |opened| (narrow(opened.n_layer), narrow(opened.n_head)))
    }

    /// What a token attends to with a head, once the worker has sent it.
    pub fn attended(&self, token: usize, head: Head) -> Option<Attended> {
        let attention = self.attention.as_ref().filter(|attention| attention.token == token as u64)?;
        Attended::of(attention, head, self.shape())
    }

    /// The notice for a prompt that was truncated.
    pub fn cut(&self) -> Option<Text> {
        let seen = self.pieces.iter().filter(|piece| piece.token.is_none()).count();
        Some(text::demo_cut(text::count(self.cut_from?), text::count(seen as u64)))
    }

    /// The notice for a text that is longer than the context.
    pub fn beyond_context(&self) -> Option<Text> {
        let context = self.opened.as_ref()?.block_size;
        (self.pieces.len() as u64 > context).then(|| text::demo_beyond_context(text::count(context)))
    }

    /// Tokens per second; `None` while there are too few to measure.
    pub fn rate(&self) -> Option<String> {
        let (n, micros) = self.pace;
        let tokens = u64::from(n).saturating_mul(1_000_000);
        match tokens.checked_div(micros)? {
            // The time of the first tokens depends mostly on the prompt.
            _ if n < N_TOKENS_MIN => None,
            0..10 => Some(text::table().number(&decimal::ratio(tokens, micros, 1))),
            rate => Some(format::grouped(rate)),
        }
    }

    /// The visible line that names the backend and the device.
    pub fn backend(&self) -> Option<Text> {
        let ready = self.ready.as_ref()?;
        Some(match (ready.way.is_webgpu(), ready.device.as_str()) {
            (true, "") => text::DEMO_ON_WEBGPU_UNNAMED.into(),
            (true, device) => text::demo_on_webgpu(device),
            (false, instructions) => text::demo_on_cpu(instructions),
        })
    }

    /// The reason for the choice of backend.
    pub fn why(&self) -> Option<String> {
        Some(say(&self.opened.as_ref()?.why))
    }
}

/// A part of a bar of categories, in percent of its width.
#[derive(Clone, Debug, PartialEq)]
pub struct BarSegment {
    /// The CSS class of its colour.
    pub band: String,
    /// The start, in percent.
    pub start: String,
    /// The width, in percent.
    pub width: String,
    /// The name and the size.
    pub said: String,
}

/// Tensors as a bar of categories. `bytes` returns a tensor's contribution; `scale` is the whole width.
pub fn bands(tensors: &[TensorSummary], bytes: impl Fn(&TensorSummary) -> u64, scale: u64) -> Vec<BarSegment> {
    let mut bands = Vec::new();
    let mut at = 0;
    // Each category has the same position and colour in every chart, after the two bands outside PyTorch.
    for (band, category) in (2..).zip(Category::ALL) {
        let sum: u64 = tensors.iter().filter(|tensor| tensor.category == category).map(&bytes).sum();
        if sum > 0 {
            let share = |bytes: u64| decimal::ratio(bytes.saturating_mul(100), scale.max(1), 2);
            let said = format!("{} {}", t(category.text()), format::size(sum));
            bands.push(BarSegment { band: format!("band-{band}"), start: share(at), width: share(sum), said });
            at += sum;
        }
    }
    bands
}

/// Planned and allocated bytes in total.
pub fn totals(tensors: &[TensorSummary]) -> (u64, u64) {
    let sum = |bytes: fn(&TensorSummary) -> u64| tensors.iter().map(bytes).sum();
    (sum(|tensor| tensor.planned_bytes), sum(|tensor| tensor.allocated_bytes))
}

/// Formats a probability in millionths as a percentage.
pub fn percent(millionths: u32) -> String {
    let thousandths = u16::try_from(millionths.saturating_add(500) / 1000).unwrap_or(1000);
    if thousandths == 0 { format!("< {}", share(1)) } else { share(thousandths) }
}

/// A token with visible spaces and line breaks.
pub fn visible(token: &str) -> String {
    token
        .chars()
        .map(|char| match char {
            ' ' => '·',
            '\n' => '⏎',
            '\t' => '⇥',
            char => char,
        })
        .collect()
}

/// A short statement of whether a backend's plan fits. `gpu_bytes` is the GPU's memory, if the user entered it.
pub fn verdict(plan: &Plan, taken: Option<DemoBackend>, gpu_bytes: Option<u64>) -> String {
    let on_gpu = gpu_bytes.zip(plan.bytes).filter(|_| plan.way.is_webgpu());
    match (&plan.refusal, on_gpu) {
        (Some(refusal), _) => say(refusal),
        (None, Some((gpu, needed))) if needed > gpu => {
            say(&text::demo_beyond_gpu(text::size(needed - gpu), text::size(gpu)))
        }
        _ if taken == Some(plan.way) => t(text::DEMO_TAKEN).to_owned(),
        (None, None) if plan.way.is_webgpu() => t(text::DEMO_FITS_MAYBE).to_owned(),
        _ => t(text::DEMO_FITS).to_owned(),
    }
}

/// An action after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayOn {
    /// Retry.
    Again,
    /// Retry on the CPU.
    OnCpu,
    /// Retry with the best backend that fits.
    Best,
    /// Return to the bundled model.
    Shipped,
}

/// The actions after a failure, the best first, with their buttons' labels.
pub fn ways_on(failure: &Failure, has_files: bool, chosen: Option<DemoBackend>, on_webgpu: bool) -> Vec<(WayOn, Key)> {
    let mut ways = Vec::new();
    if failure.kind == FailureKind::DoesNotFit && chosen.is_some() {
        ways.push((WayOn::Best, text::DEMO_BEST));
    }
    if failure.kind == FailureKind::Device {
        if on_webgpu {
            ways.push((WayOn::OnCpu, text::DEMO_USE_CPU));
        }
        ways.push((WayOn::Again, text::DEMO_AGAIN));
    }
    if has_files {
        ways.push((WayOn::Shipped, text::DEMO_BACK));
    } else if ways.is_empty() {
        ways.push((WayOn::Again, text::DEMO_AGAIN));
    }
    ways
}

/// The fewest tokens for a rate.
const N_TOKENS_MIN: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(kind: FailureKind) -> Failure {
        Failure { kind, text: text::DEMO_FITS_NOWHERE.into(), hint: None }
    }

    fn token(id: u32, adds: &str) -> Token {
        Token { id, adds: adds.to_owned(), candidates: vec![(id, adds.to_owned(), 500_000)] }
    }

    #[test]
    fn new_text_replaces_previous() {
        let mut demo = Demo::default();
        demo.hear(began(&["O", "n"], 2));
        assert_eq!(demo.cut(), None);
        assert_eq!((demo.stage.clone(), demo.looked_at(None)), (Stage::Writing, None));
        demo.hear(WorkerResponse::Wrote(TokenReport {
            tokens: vec![token(7, "c"), token(8, "e")],
            n_tokens: 2,
            micros: 4000,
        }));
        assert_eq!([None, Some(2), Some(0), Some(4)].map(|at| demo.looked_at(at)), [3, 2, 0, 3].map(Some));
        assert_eq!(demo.rate().as_deref(), Some("500"));
        demo.hear(WorkerResponse::Ended(End::Length));
        assert_eq!(demo.stage, Stage::Ready);
        demo.hear(began(&[], 0));
        assert_eq!((demo.pieces.len(), demo.end, demo.rate()), (0, None, None));
    }

    fn began(tokens: &[&str], n_tokens: u64) -> WorkerResponse {
        let tokens = tokens.iter().map(|&token| token.to_owned()).collect();
        WorkerResponse::Began(PromptReport { tokens, n_tokens })
    }

    #[test]
    fn a_prompt_that_is_not_seen_whole_is_reported() {
        let mut demo = Demo::default();
        demo.hear(began(&["O", "n"], 10_002));
        demo.hear(WorkerResponse::Wrote(TokenReport { tokens: vec![token(7, "c")], n_tokens: 1, micros: 4000 }));
        let said = demo.cut().map(|text| say(&text)).expect("it is cut");
        assert!(said.contains("10,002") && said.contains("last 2."), "{said}");
    }

    #[test]
    fn slow_machines_have_a_rate_too() {
        let demo = Demo { pace: (3, 4_000_000), ..Demo::default() };
        assert_eq!(demo.rate().as_deref(), Some("0.8"));
    }

    #[test]
    fn a_prompt_that_cannot_be_read_leaves_the_model() {
        let mut demo = Demo { stage: Stage::Ready, ..Demo::default() };
        demo.hear(WorkerResponse::Failed(failure(FailureKind::Prompt)));
        assert_eq!(demo.stage, Stage::Ready);
        assert!(demo.refused.is_some());
        demo.hear(WorkerResponse::Failed(failure(FailureKind::Device)));
        assert!(matches!(demo.stage, Stage::Failed(_)));
    }

    #[test]
    fn every_failure_has_a_way_on() {
        let ways = |kind, has_files, on_webgpu| {
            let ways = ways_on(&failure(kind), has_files, None, on_webgpu);
            ways.into_iter().map(|(way, _)| way).collect::<Vec<_>>()
        };
        assert_eq!(ways(FailureKind::Device, false, true), [WayOn::OnCpu, WayOn::Again]);
        assert_eq!(ways(FailureKind::Device, true, false), [WayOn::Again, WayOn::Shipped]);
        assert_eq!(ways(FailureKind::Files, true, false), [WayOn::Shipped]);
        assert_eq!(ways(FailureKind::Files, false, false), [WayOn::Again]);
        assert_eq!(ways(FailureKind::DoesNotFit, true, true), [WayOn::Shipped]);
        let refused = ways_on(&failure(FailureKind::DoesNotFit), false, Some(DemoBackend::WebGpu), true);
        assert_eq!(refused, [(WayOn::Best, text::DEMO_BEST)]);
    }

    #[test]
    fn a_gpus_memory_decides_once_it_is_known() {
        let plan = |way| Plan { way, bytes: Some(3 << 20), refusal: None };
        let said = |way, taken, gpu_bytes| verdict(&plan(way), taken, gpu_bytes);
        assert_eq!(said(DemoBackend::WebGpu, None, None), t(text::DEMO_FITS_MAYBE));
        assert_eq!(said(DemoBackend::WebGpu, None, Some(3 << 20)), t(text::DEMO_FITS));
        assert!(said(DemoBackend::WebGpu, None, Some(1 << 20)).contains("of your GPU"));
        assert_eq!(said(DemoBackend::Cpu, None, Some(1 << 20)), t(text::DEMO_FITS));
        assert_eq!(said(DemoBackend::WebGpu, Some(DemoBackend::WebGpu), None), t(text::DEMO_TAKEN));
        let refused = Plan { refusal: Some(text::DEMO_NO_GPU.into()), ..plan(DemoBackend::WebGpu) };
        assert_eq!(verdict(&refused, None, Some(1 << 30)), t(text::DEMO_NO_GPU));
    }

    #[test]
    fn a_bar_is_as_wide_as_its_scale() {
        let tensor = |category, planned_bytes| TensorSummary {
            name: "x".to_owned(),
            category,
            n: 1,
            planned_bytes,
            allocated_bytes: planned_bytes,
        };
        let tensors = [tensor(Category::Activations, 25), tensor(Category::Parameters, 75)];
        let bands = bands(&tensors, |tensor| tensor.planned_bytes, 100);
        let shares: Vec<_> = bands.iter().map(|band| (band.start.as_str(), band.width.as_str())).collect();
        assert_eq!(shares, [("0.00", "75.00"), ("75.00", "25.00")]);
        assert_eq!(totals(&tensors), (100, 100));
    }
}
