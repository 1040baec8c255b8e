//! Builds a report from a text: selects the parts to read and the positions that are messages.

use super::message::{Era, Kind, Message, Note, Operation, Origin, Phase, PhaseHint, Report};
use super::reader::{Window, cleaned};
use super::scan::{Frame, Frames, MessageForm, MessagePosition, Places, Scan};
use super::{others, pytorch};
use crate::memory::message::TorchVersion;

/// Maximum input that is read in full. Of longer texts only the first and last halves of this size are read: the first
/// message is the cause, the last ends the run.
pub const MAX_INPUT_BYTES: usize = 5_000_000;
/// Maximum length of a message's text in bytes.
const MAX_TEXT_BYTES: usize = 2_000;
/// Maximum number of squeezed bytes after a message's phrase that may belong to it. The longest known message has 700.
const MAX_AFTER: usize = 1_700;

/// Finds the messages in any text. Runs in linear time and never fails.
#[must_use]
pub fn read(text: &str) -> Report {
    let mut scan = Scan::new(text.as_bytes());
    let truncated = text.len() > MAX_INPUT_BYTES;
    if truncated {
        let head = text.floor_char_boundary(MAX_INPUT_BYTES / 2);
        let tail = text.ceil_char_boundary(text.len() - MAX_INPUT_BYTES / 2);
        let n_lines = text.as_bytes()[..tail].iter().filter(|c| **c == b'\n').count();
        scan.run(0, head, 1);
        scan.run(tail, text.len(), u32::try_from(n_lines).unwrap_or(u32::MAX - 1).saturating_add(1));
    } else {
        scan.run(0, text.len(), 1);
    }
    report(text, &scan, truncated)
}

fn report(text: &str, scan: &Scan<'_>, truncated: bool) -> Report {
    let found = if scan.strong.n > 0 { scan.strong } else { scan.weak };
    let (places, n_messages) = match scan.not_oom {
        Some((_, place)) if found.n == 0 => (Places { first: Some(place), last: None, n: 1 }, 0),
        _ => (found, found.n),
    };
    let Some(first) = places.first else { return Report { truncated, ..Report::default() } };
    let last = places.last.filter(|last| last.anchor != first.anchor);
    // Some programs print the message before its traceback.
    let frames = [Some(first.frames), last.map(|last| last.frames), Some(scan.frames)];
    let frames = frames.into_iter().flatten().find(|frames| !frames.is_empty()).unwrap_or_default();
    let mut messages = [Some(first), last].map(|found| found.map(|found| message(text, scan.jax, &found)));
    for message in messages.iter_mut().flatten() {
        if message.kind == Kind::PytorchCudaMalloc && frames.has(Frame::PinMemory) {
            message.note(Note::Pinned);
        }
    }
    let [first, last] = messages;
    let last = last.or_else(|| first.clone());
    Report { first, last, n_messages, phase_hint: phase_hint(frames), truncated }
}

fn message(text: &str, jax: bool, found: &MessagePosition<'_>) -> Message {
    let window = Window::read(found.start, found.anchor, MAX_AFTER);
    let mut message = Message::new(Kind::Pytorch);
    message.rank = found.rank;
    let phrase = window.anchor.saturating_sub(found.phrase);
    let mut begin = None;
    let len = match found.form {
        MessageForm::Caching | MessageForm::CachingBare => {
            begin = Some(beginning(window.before(), phrase));
            let text = if found.form == MessageForm::Caching { window.after() } else { &[] };
            pytorch::caching(text, window.before(), &mut message)
        }
        MessageForm::CachingTail => {
            let at = window.before().windows(3).rposition(|w| w == b"gpu").unwrap_or(phrase);
            begin = Some(at);
            let len = pytorch::caching(&window.squeezed[at..], &[], &mut message);
            (at + len).saturating_sub(window.anchor)
        }
        MessageForm::Async => pytorch::cuda_malloc_async(&window, &mut message),
        MessageForm::Mps => pytorch::mps(&window, &mut message),
        MessageForm::Not(not) => {
            message.kind = Kind::NotOom;
            message.not_oom = Some(not);
            0
        }
        form => {
            if matches!(form, MessageForm::CudaMalloc | MessageForm::Thc) {
                begin = Some(beginning(window.before(), phrase));
            }
            message.era = malloc_era(form, &window);
            others::read(form, &window, jax, &mut message)
        }
    };
    if found.form == MessageForm::LlmC {
        begin = window.before().windows(11).rposition(|w| w == b"[cudaerror]");
    }
    let (from, line) = match begin {
        Some(at) => window.begin(at),
        None => line_of(&window, phrase),
    };
    let end = window.end(window.anchor + len).max(found.anchor);
    let to = if begin.is_some() && len > 0 { end } else { end_of_line(text, end) };
    message.line = line;
    message.text = cleaned(text, from, to, MAX_TEXT_BYTES);
    message
}

/// Squeezed text that may precede a message's phrase and belongs to the message.
const BEFORE_PHRASE: [&[u8]; 20] = [
    b"torch.outofmemoryerror:",
    b"torch.cuda.outofmemoryerror:",
    b"outofmemoryerror:",
    b"torch.acceleratorerror:",
    b"runtimeerror:",
    b"outofmemory.",
    b"outofthememory.",
    b"cuda",
    b"hip",
    b"xpu",
    b"npu",
    b"musa",
    b"cudaerror:",
    b"hiperror:",
    b"cudadrivererror:",
    b"cudaruntimeerror(2):",
    b"tritonerror[cuda]:",
    b"thcudacheckfail",
    b"cudamallocfailed:",
    b"cudafailedwitherror2",
];

/// Returns the start of the message whose phrase begins at `at`.
fn beginning(squeezed: &[u8], mut at: usize) -> usize {
    while let Some(more) = BEFORE_PHRASE.iter().find(|more| squeezed[..at].ends_with(more)) {
        at -= more.len();
    }
    at
}

/// Returns the start of the line that contains the squeezed byte `i`, and its number.
fn line_of(window: &Window, i: usize) -> (usize, u32) {
    let (_, line) = window.begin(i);
    let first = (0..=i).rev().take_while(|i| window.begin(*i).1 == line).last().unwrap_or(i);
    (window.begin(first).0, line)
}

fn end_of_line(text: &str, at: usize) -> usize {
    let rest = &text.as_bytes()[at..text.len().min(at + MAX_TEXT_BYTES)];
    at + rest.iter().position(|c| matches!(c, b'\n' | b'\r')).unwrap_or(rest.len())
}

/// Returns the PyTorch versions with this wording of CUDA's own error.
fn malloc_era(form: MessageForm, window: &Window) -> Option<Era> {
    let version = |major, minor| TorchVersion { major, minor };
    let tail = &window.squeezed[window.anchor.saturating_sub(60)..];
    let has = |phrase: &[u8]| tail.windows(phrase.len()).any(|w| w == phrase);
    match form {
        // The storage's own allocation: later versions print the caching allocator's message here.
        MessageForm::Thc if has(b"thcstorage") => Some(Era { first: version(0, 1), last: Some(version(0, 4)) }),
        MessageForm::CudaMalloc if has(b"torch.acceleratorerror:") => Some(Era { first: version(2, 8), last: None }),
        _ => None,
    }
}

fn phase_hint(frames: Frames) -> PhaseHint {
    // An evaluation contains a forward, and with checkpointing so does a backward.
    const PHASES: [(Frame, Phase); 7] = [
        (Frame::EstimateLoss, Phase::Evaluation),
        (Frame::Backward, Phase::Backward),
        (Frame::Clip, Phase::Clip),
        (Frame::Optimizer, Phase::Optimizer),
        (Frame::Forward, Phase::Forward),
        (Frame::Load, Phase::Load),
        (Frame::ToDevice, Phase::ToDevice),
    ];
    let operation = frames.operation.and_then(|frame| match frame {
        Frame::CrossEntropy => Some(Operation::CrossEntropy),
        Frame::Attention => Some(Operation::Attention),
        Frame::Mlp => Some(Operation::Mlp),
        Frame::LmHead => Some(Operation::LmHead),
        Frame::PinMemory => Some(Operation::PinMemory),
        _ => None,
    });
    PhaseHint {
        phase: PHASES.iter().find(|(frame, _)| frames.has(*frame)).map(|(_, phase)| *phase),
        operation,
        compiled: frames.has(Frame::Inductor),
        checkpointing: frames.has(Frame::Checkpointing),
        origin: origin(frames),
    }
}

/// Returns the program that a frame's path names.
fn origin(frames: Frames) -> Option<Origin> {
    const FAMILIES: [(Frame, &str); 8] = [
        (Frame::Gemma2, "gemma2"),
        (Frame::Gemma3, "gemma3_text"),
        (Frame::Gpt2, "gpt2"),
        (Frame::Llama, "llama"),
        (Frame::Mistral, "mistral"),
        (Frame::Qwen2, "qwen2"),
        (Frame::Qwen3, "qwen3"),
        (Frame::SmolLm3, "smollm3"),
    ];
    let model_type = FAMILIES.iter().find(|(frame, _)| frames.has(*frame)).map(|(_, name)| *name);
    let transformers = Origin::Transformers { model_type, peft: frames.has(Frame::Peft) };
    match frames.has(Frame::Nanochat) {
        true => Some(Origin::Nanochat),
        false => (model_type.is_some() || frames.has(Frame::Transformers)).then_some(transformers),
    }
}
