//! Messages of other programs, and of CUDA beside PyTorch's allocator.

use super::figures::{after, find, index, shaped, size};
use super::message::{Kind, Message, Note, Size};
use super::reader::Window;
use super::scan::Form;

/// Squeezed bytes behind a phrase in which its figures stand.
const MAX_FIGURES: usize = 500;

/// Reads a message that has no clauses; how many squeezed bytes of it lie behind its phrase.
pub(super) fn read(form: Form, window: &Window, jax: bool, message: &mut Message) -> usize {
    let text = window.after();
    let text = &text[..text.len().min(MAX_FIGURES)];
    let before = window.before();
    let before = &before[before.len().saturating_sub(MAX_FIGURES)..];
    match form {
        Form::Library | Form::LibraryDisguised => {
            message.kind = Kind::Cublas;
            if form == Form::LibraryDisguised {
                message.note(Note::Disguised);
            }
        }
        Form::LlmC | Form::LlmCManaged => {
            message.kind = Kind::LlmC;
            if form == Form::LlmCManaged {
                message.note(Note::FellBack);
            } else {
                // The last thing it announced: allocating 4725 MiB for activations
                message.requested = last_figure(before, b"allocating");
            }
        }
        Form::Bitsandbytes => message.kind = Kind::Bitsandbytes,
        Form::MpsBuffer => {
            message.kind = Kind::Mps;
            message.note(Note::BufferLimit);
            message.requested = first_figure(text);
        }
        Form::CpuAllocator | Form::Numpy | Form::Host => {
            message.kind = Kind::Cpu;
            message.requested = match form {
                Form::Host => after(text, b"size:").and_then(first_figure),
                _ => first_figure(text),
            };
            if message.requested.is_none() {
                from_shape(text, message);
            }
        }
        Form::Exhausted | Form::Xla | Form::Bfc | Form::OomWhen | Form::Driver => xla(form, text, before, jax, message),
        _ => cuda_malloc(form, text, before, message),
    }
    0
}

/// XLA's and TensorFlow's statuses, which word the request in many ways.
fn xla(form: Form, text: &[u8], before: &[u8], jax: bool, message: &mut Message) {
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
    let is_tensorflow = form == Form::OomWhen
        || has(text, b"oomwhenallocating")
        || has(text, b"[op:")
        || tail.ends_with(b"resourceexhausted") && text.starts_with(b"error")
        // On Windows the backslash before the name has taken its first letter along.
        || !jax && has(before, b"ensorflow") && !has(before, b"xla");
    message.kind = match form {
        _ if has(before, b"cupy.cuda") => Kind::PytorchCudaMalloc,
        _ if is_tensorflow => Kind::Tensorflow,
        // The driver's name for it, in a program that says nothing else.
        Form::Driver if !jax => Kind::PytorchCudaMalloc,
        _ => Kind::Jax,
    };
    let requested = match form {
        Form::Xla | Form::Bfc => first_figure(text.strip_prefix(b"allocating").unwrap_or(text)),
        Form::Driver => last_figure(before, b"failedtoallocate"),
        _ => REQUESTS.iter().find_map(|phrase| after(text, phrase).and_then(first_figure)),
    };
    // XLA's newest allocator says it before the status.
    let earlier = || last_figure(before, b"failedtoallocate").filter(|_| form == Form::Exhausted);
    let requested = requested.or_else(earlier);
    message.requested = requested;
    if requested.is_none() {
        from_shape(text, message);
    }
    // TPU: Used 17.40G of 15.48G hbm.
    let used = find(text, b"hbm.used").map(|at| &text[at + 8..]);
    message.total = used.and_then(|rest| after(rest, b"of")).and_then(first_figure);
    message.free = after(text, b"thereare").and_then(first_figure);
    let card = [&b"gpu:"[..], b"gpu_", b"deviceordinal"];
    message.gpu_index = card.iter().find_map(|name| after(text, name).and_then(index));
    if message.gpu_index.is_none() && form == Form::Bfc {
        message.gpu_index = after(before, b"allocator(gpu_").and_then(index);
    }
}

/// CUDA's own error, in whichever library.
fn cuda_malloc(form: Form, text: &[u8], before: &[u8], message: &mut Message) {
    message.kind = Kind::PytorchCudaMalloc;
    if form == Form::Nccl {
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

/// The figure at the start, and the exact one that follows in brackets: `17.79G (19104890880 bytes)`.
fn first_figure(text: &[u8]) -> Option<Size> {
    let figure = size(text)?;
    let exact = text[figure.len..].strip_prefix(b"(").and_then(size).and_then(|exact| exact.size);
    exact.filter(|exact| exact.resolution_bytes == 1).or(figure.size)
}

/// The figure behind the last `phrase`.
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
