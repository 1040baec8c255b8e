//! The demo's state, built from its worker's messages.

mod settings;
mod stored_settings;

use headroom_planner::gpt::tensors::Category;
use headroom_protocol::demo::{
    DemoBackend, End, Failure, FailureKind, Map, ModelPlans, ModelReport, Plan, PromptReport, TensorSummary, Token,
    TokenReport, WorkerResponse,
};
use headroom_text::decimal;

use super::format;
use crate::text::{self, Key, Text, say, t};

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
    /// The attention map.
    pub map: Option<Map>,
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
            WorkerResponse::Attention(map) => self.map = Some(map),
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
        (self.end, self.refused, self.map, self.pace) = (None, None, None, (0, 0));
        self.stage = Stage::Writing;
    }

    fn add(&mut self, wrote: TokenReport) {
        self.pace = (wrote.n_tokens, wrote.micros);
        self.pieces
            .extend(wrote.tokens.into_iter().map(|token| Piece { words: token.adds.clone(), token: Some(token) }));
    }

    /// The token whose alternatives are shown: the selected one, else the last generated one.
    pub fn looked_at(&self, selected: Option<usize>) -> Option<(usize, &Token)> {
        let written = |index: usize| Some((index, self.pieces.get(index)?.token.as_ref()?));
        selected.and_then(written).or_else(|| written(self.pieces.len().checked_sub(1)?))
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

/// The cells of an attention map with the same shade; darker cells have more weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Grade {
    /// The shade: 1 to [`N_GRADES`].
    pub grade: usize,
    /// Its cells, as an SVG path of unit squares.
    pub path: String,
}

/// The number of shades of a map.
pub const N_GRADES: usize = 8;

/// Groups the cells of a map by shade. If tokens precede the map, the first column holds a row's attention to them.
pub fn grades(map: &Map) -> Vec<Grade> {
    let n = map.tokens.len();
    let mut paths = vec![String::new(); N_GRADES];
    for row in 0..n {
        for column in 0..=row {
            let grade = grade_of(cell(map, row, column));
            if grade > 0 {
                paths[grade - 1].push_str(&format!("M{column} {row}h1v1h-1z"));
            }
        }
    }
    let grades = paths.into_iter().enumerate().filter(|(_, path)| !path.is_empty());
    grades.map(|(index, path)| Grade { grade: index + 1, path }).collect()
}

/// A row's attention to a column, in thousandths.
pub fn cell(map: &Map, row: usize, column: usize) -> u16 {
    map.weights.get(row * map.tokens.len() + column).copied().unwrap_or(0)
}

/// The shade is proportional to the square root: most shares are small and would otherwise have the same shade.
fn grade_of(thousandths: u16) -> usize {
    let share = (f64::from(thousandths.min(1000)) / 1000.0).sqrt();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to the number of shades")]
    let grade = (share * N_GRADES as f64).round() as usize;
    grade
}

/// The description of a cell.
pub fn cell_words(map: &Map, row: usize, column: usize) -> Option<Text> {
    let (from, to) = (map.tokens.get(row)?, map.tokens.get(column)?);
    (column <= row).then(|| text::demo_looks(visible(from), visible(to), share(cell(map, row, column))))
}

/// Formats thousandths as a percentage.
pub fn share(thousandths: u16) -> String {
    text::table().number(&format!("{} %", decimal::ratio(u64::from(thousandths), 10, 1)))
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
            ' ' => '␣',
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
    use headroom_protocol::demo::Head;

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
        assert_eq!(demo.looked_at(None).map(|(at, token)| (at, token.id)), Some((3, 8)));
        assert_eq!(demo.looked_at(Some(2)).map(|(at, token)| (at, token.id)), Some((2, 7)));
        assert_eq!(demo.looked_at(Some(0)).map(|(at, _)| at), Some(3), "the prompt was not chosen");
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
        assert!(said.contains("10,002") && said.contains("last 2,"), "{said}");
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
    fn a_map_has_darker_cells_for_more_and_none_above_its_diagonal() {
        let map = Map {
            head: Head::default(),
            tokens: vec!["a".to_owned(), " ".to_owned()],
            weights: vec![1000, 0, 250, 750],
            earlier: vec![0, 0],
        };
        let grades = grades(&map);
        let of = |grade: usize| grades.iter().find(|found| found.grade == grade).map(|found| found.path.as_str());
        assert_eq!((of(8), of(4), of(7)), (Some("M0 0h1v1h-1z"), Some("M0 1h1v1h-1z"), Some("M1 1h1v1h-1z")));
        assert_eq!(cell_words(&map, 0, 1), None);
        let said = cell_words(&map, 1, 0).expect("a cell").to_string();
        assert!(said.contains('␣') && said.contains("25.0 %"), "{said}");
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
