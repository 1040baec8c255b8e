//! Messages of other programs, and of CUDA outside PyTorch's allocator.

use super::figures::{after, find, index, shaped, size};
use super::message::{Kind, Message, Note, Size};
use super::reader::Window;
use super::scan::MessageForm;

/// Maximum number of squeezed bytes after a phrase that may contain its figures.
const MAX_FIGURES: usize = 500;

/// Reads a message that has no clauses. Returns its length after the phrase in squeezed bytes.
pub(super) fn read(form: MessageForm, window: &Window, jax: bool, message: &mut Message) -> usize {
    let text = window.after();
    let text = &text[..text.len().min(MAX_FIGURES)];
    let before = window.before();
    let before = &before[before.len().saturating_sub(MAX_FIGURES)..];
    match form {
        MessageForm::Library | MessageForm::LibraryDisguised => {
            message.kind = Kind::Cublas;
            if form == MessageForm::LibraryDisguised {
                message.note(Note::Disguised);
            }
        }
        MessageForm::LlmC | MessageForm::LlmCManaged => {
            message.kind = Kind::LlmC;
            if form == MessageForm::LlmCManaged {
                message.note(Note::FellBack);
            } else {
                // The last announced allocation: allocating 4725 MiB for activations
                message.requested = last_figure(before, b"allocating");
            }
        }
        MessageForm::Bitsandbytes => message.kind = Kind::Bitsandbytes,
        MessageForm::MpsBuffer => {
            message.kind = Kind::Mps;
            message.note(Note::BufferLimit);
            message.requested = first_figure(text);
        }
        MessageForm::CpuAllocator | MessageForm::Numpy | MessageForm::Host => {
            message.kind = Kind::Cpu;
            message.requested = match form {
                MessageForm::Host => after(text, b"size:").and_then(first_figure),
                _ => first_figure(text),
            };
            if message.requested.is_none() {
                from_shape(text, message);
            }
        }
        MessageForm::Exhausted | MessageForm::Xla | MessageForm::Bfc | MessageForm::OomWhen | MessageForm::Driver => {
            xla(form, text, before, jax, message);
        }
        _ => cuda_malloc(form, text, before, message),
    }
    0
}

/// Reads the status messages of XLA and TensorFlow, which word the request in many ways.
fn xla(form: MessageForm, text: &[u8], before: &[u8], jax: bool, message: &mut Message) {
    const REQUESTS: [&[u8]; 8] = [
        b"tryingtoallocate",
        b"outofmemoryallocating",
        b"attemptingtoreserve",
        b"attemptingtoallocate",
        b"allocaterequestfor",
        b"failedtoallocate",
        b"allocating",
        b"requested",
    ];
    let tail = &before[before.len().saturating_sub(24)..];
    let is_tensorflow = form == MessageForm::OomWhen
        || has(text, b"oomwhenallocating")
        || has(text, b"[op:")
        || tail.ends_with(b"resourceexhausted") && text.starts_with(b"error")
        // On Windows, the backslash before the name swallows its first letter.
        || !jax && has(before, b"ensorflow") && !has(before, b"xla");
    message.kind = match form {
        _ if has(before, b"cupy.cuda") => Kind::PytorchCudaMalloc,
        _ if is_tensorflow => Kind::Tensorflow,
        // The driver's error name, in a program that prints nothing else.
        MessageForm::Driver if !jax => Kind::PytorchCudaMalloc,
        _ => Kind::Jax,
    };
    let requested = match form {
        MessageForm::Xla | MessageForm::Bfc => first_figure(text.strip_prefix(b"allocating").unwrap_or(text)),
        MessageForm::Driver => last_figure(before, b"failedtoallocate"),
        _ => REQUESTS.iter().find_map(|phrase| after(text, phrase).and_then(first_figure)),
    };
    // XLA's newest allocator prints the size before the status.
    let earlier = || last_figure(before, b"failedtoallocate").filter(|_| form == MessageForm::Exhausted);
    let requested = requested.or_else(earlier);
    message.requested = requested;
    if requested.is_none() {
        from_shape(text, message);
    }
    // TPU: Used 17.40G of 15.48G hbm.
    let used = find(text, b"hbm.used").map(|at| &text[at + 8..]);
    message.total = used.and_then(|rest| after(rest, b"of")).and_then(first_figure);
    message.free = after(text, b"thereare").and_then(first_figure);
    let gpu = [&b"gpu:"[..], b"gpu_", b"deviceordinal"];
    message.gpu_index = gpu.iter().find_map(|name| after(text, name).and_then(index));
    if message.gpu_index.is_none() && form == MessageForm::Bfc {
        message.gpu_index = after(before, b"allocator(gpu_").and_then(index);
    }
}

/// Reads CUDA's own error, from any library.
fn cuda_malloc(form: MessageForm, text: &[u8], before: &[u8], message: &mut Message) {
    message.kind = Kind::PytorchCudaMalloc;
    if form == MessageForm::Nccl {
        message.note(Note::Nccl);
    }
    let near = &text[..text.len().min(160)];
    if has(near, b"pythoninterface") || has(near, b"bitsandbytes") || has(near, b"csrc/ops.cu") {
        message.kind = Kind::Bitsandbytes;
    }
    // llama.cpp: allocating 3000.00 MiB on device 0: cudaMalloc failed: out of memory
    if before.ends_with(b"cudamallocfailed:outofmemory") {
        message.requested = last_figure(before, b"allocating");
        message.gpu_index = before.windows(8).rposition(|w| w == b"ondevice").and_then(|at| index(&before[at + 8..]));
    }
}

/// Returns the figure at the start, or the exact one in parentheses after it: `17.79G (19104890880 bytes)`.
fn first_figure(text: &[u8]) -> Option<Size> {
    let figure = size(text)?;
    let exact = text[figure.len..].strip_prefix(b"(").and_then(size).and_then(|exact| exact.size);
    exact.filter(|exact| exact.resolution_bytes == 1).or(figure.size)
}

/// Returns the figure after the last `phrase`.
fn last_figure(text: &[u8], phrase: &[u8]) -> Option<Size> {
    let at = text.windows(phrase.len()).rposition(|window| window == phrase)?;
    first_figure(&text[at + phrase.len()..])
}

fn from_shape(text: &[u8], message: &mut Message) {
    message.requested = shaped(text);
    if message.requested.is_some() {
        message.note(Note::FromShape);
    }
}

fn has(text: &[u8], phrase: &[u8]) -> bool {
    find(text, phrase).is_some()
}
