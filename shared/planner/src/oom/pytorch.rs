//! PyTorch's own messages.
//!
//! The caching allocator's message is a sequence of clauses that differ between versions. Each clause is parsed on its
//! own, so an unknown wording loses only that clause.
//! Source: c10/cuda/CUDACachingAllocator.cpp, CUDAMallocAsyncAllocator.cpp and MPSAllocator.mm of PyTorch 1.0 to 2.11,
//! as quoted in public messages.

use super::figures::{Figure, after, find, index, number, size};
use super::message::{Era, Kind, Message, Note, OtherProcess, Size};
use super::reader::Window;
use crate::memory::message::TorchVersion;

/// Maximum plausible memory of a GPU. A larger figure is a counter that underflowed.
const MAX_GPU_BYTES: u64 = 1 << 46;
/// Maximum number of consecutive unknown clauses within a message.
const MAX_UNKNOWN: usize = 5;
/// Maximum length of a clause.
const MAX_CLAUSE: usize = 160;

/// Reads the clauses after `Tried to allocate`. Returns their length in squeezed bytes.
pub(super) fn caching(text: &[u8], before: &[u8], message: &mut Message) -> usize {
    let mut at = 0;
    if let Some(figure) = size(text) {
        message.requested = figure.size;
        if figure.size.is_none() {
            message.note(Note::MoreThanExabyte);
        }
        at = figure.len;
    } else if text.starts_with(b"morethan1eb") {
        message.note(Note::MoreThanExabyte);
        at = b"morethan1ebmemory".len().min(text.len());
    }
    let mut end = at;
    let mut n_unknown = 0;
    let mut cached = false;
    while at < text.len() && n_unknown < MAX_UNKNOWN {
        let len = clause_len(&text[at..]);
        let clause = &text[at..at + len];
        at += len + 1;
        if clause.is_empty() {
            continue;
        }
        if len > MAX_CLAUSE || has(clause, b"outofmemory") || clause.starts_with(b"ifreserved") {
            break;
        }
        cached |= clause.ends_with(b"cached");
        if read_clause(clause, message) {
            end = at.min(text.len());
            n_unknown = 0;
        } else {
            n_unknown += 1;
        }
    }
    end += advice_len(&text[end..]);
    finish(message);
    message.era = era(&text[..end], before, cached);
    end
}

/// Returns the number of bytes up to the end of the clause. A dot between digits belongs to a number.
fn clause_len(text: &[u8]) -> usize {
    let ends = |(i, c): (usize, &u8)| match c {
        b';' | b'(' | b')' | b',' => true,
        b'.' => {
            let digit = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(u8::is_ascii_digit);
            !(digit(i.checked_sub(1)) && digit(Some(i + 1)))
        }
        _ => false,
    };
    text.iter().enumerate().position(ends).unwrap_or(text.len())
}

/// Parses a clause. Returns `false` if its wording is unknown.
fn read_clause(clause: &[u8], message: &mut Message) -> bool {
    if let Some(Figure { size: figure, len }) = size(clause) {
        let name = &clause[len..];
        let figure = on_gpu(figure, message);
        let place = match name {
            _ if name.starts_with(b"totalcapac") => &mut message.total,
            _ if name.starts_with(b"alreadyallocated") => &mut message.allocated,
            _ if name.starts_with(b"reserved") => &mut message.reserved,
            // Until 1.3 this is the cached memory without live tensors.
            _ if name.starts_with(b"cached") => &mut message.unallocated,
            _ if name.starts_with(b"allowed") => &mut message.allowed,
            _ if name.starts_with(b"free") => &mut message.free,
            _ => return false,
        };
        *place = figure;
        return true;
    }
    let figure = |phrase: &[u8]| after(clause, phrase).and_then(size);
    if clause.starts_with(b"gpu") {
        message.gpu_index = index(&clause[3..]);
        let total = after(clause, b"totalcapac").and_then(|rest| after(rest, b"of")).and_then(size);
        if let Some(total) = total {
            message.total = on_gpu(total.size, message);
        }
        if let Some(free) = figure(b"ofwhich") {
            message.free = on_gpu(free.size, message);
        }
        return message.gpu_index.is_some();
    }
    if let Some(held) = figure(b"thisprocesshas") {
        message.process = on_gpu(held.size, message);
    } else if let Some(held) = clause.strip_prefix(b"process").and(figure(b"has")) {
        if let Some(bytes) = on_gpu(held.size, message) {
            message.other_processes.push(OtherProcess { pid: number(&clause[b"process".len()..]), bytes });
        }
    } else if let Some(live) = figure(b"oftheallocatedmemory") {
        message.allocated = on_gpu(live.size, message);
    } else if let Some(pools) = clause.strip_prefix(b"with").and_then(size) {
        message.private_pools = on_gpu(pools.size, message);
    } else if let Some(rest) = clause.strip_prefix(b"and").and_then(size) {
        message.unallocated = on_gpu(rest.size, message);
    } else {
        return clause.starts_with(b"includingnon-pytorchmemory");
    }
    true
}

/// Returns a figure of the GPU, or adds a note if it is implausible.
fn on_gpu(size: Option<Size>, message: &mut Message) -> Option<Size> {
    let plausible = size.filter(|size| size.bytes <= MAX_GPU_BYTES);
    if plausible.is_none() {
        message.note(Note::Implausible);
    }
    plausible
}

/// Returns the length of the advice at the end, including the URL of PyTorch's notes.
fn advice_len(text: &[u8]) -> usize {
    if !text.starts_with(b"ifreserved") && !text.starts_with(b")ifreserved") {
        return usize::from(text.first() == Some(&b')'));
    }
    let text = &text[..text.len().min(500)];
    let Some(at) = find(text, b"formemorymanagement") else { return clause_len(text) };
    let rest = &text[at..];
    let end = if has(rest, b"(http") { find(rest, b")") } else { find(rest, b"alloc_conf").map(|n| n + 9) };
    at + end.map_or(0, |n| n + 1)
}

/// Derives further values from the figures.
fn finish(message: &mut Message) {
    if let (None, Some(live), Some(rest)) = (message.reserved, message.allocated, message.unallocated) {
        message.reserved = sum(live, rest);
    }
    if let (Some(live), Some(total)) = (message.allocated, message.total)
        && live.bytes > total.bytes + total.resolution_bytes
    {
        message.note(Note::Spilled);
    }
    // In a container, a process does not know its PID on the host, so PyTorch lists it like any other.
    let held = message.reserved.or(message.allocated);
    if let (Some(held), None, false) = (held, message.process, message.notes.contains(&Note::Implausible)) {
        let holds_it = |other: &OtherProcess| {
            held.bytes > 0 && other.bytes.bytes + other.bytes.resolution_bytes + held.resolution_bytes >= held.bytes
        };
        let candidates = message.other_processes.iter().filter(|other| holds_it(other)).count();
        if candidates == 1 {
            message.own_process = message.other_processes.iter().position(holds_it);
            message.note(Note::OwnProcessNumbered);
        }
    }
    if message.total.is_none() && !message.notes.contains(&Note::Implausible) {
        message.note(Note::CutShort);
    }
}

fn sum(a: Size, b: Size) -> Option<Size> {
    let bytes = a.bytes.checked_add(b.bytes)?;
    Some(Size { bytes, resolution_bytes: a.resolution_bytes + b.resolution_bytes })
}

/// Returns the versions with this wording. `before` ends with the exception's class and the device's name.
fn era(text: &[u8], before: &[u8], cached: bool) -> Option<Era> {
    let range = |first: (u32, u32), last: Option<(u32, u32)>| {
        let version = |(major, minor)| TorchVersion { major, minor };
        Some(Era { first: version(first), last: last.map(version) })
    };
    let before = &before[before.len().saturating_sub(80)..];
    let has_class = has(before, b"torch.outofmemoryerror:");
    let has_cuda_class = has(before, b"torch.cuda.outofmemoryerror:");
    if cached {
        return range((1, 0), Some((1, 3)));
    }
    if has(text, b"capacty") {
        return range((2, 1), Some((2, 1)));
    }
    if has(text, b"hasatotalcapacity") {
        return if has(text, b"docs.pytorch.org") {
            range((2, 9), None)
        } else if has_class {
            range((2, 5), None)
        } else if has_cuda_class {
            range((2, 2), Some((2, 4)))
        } else {
            range((2, 2), None)
        };
    }
    if has(text, b"reservedintotal") {
        return if has_cuda_class {
            range((1, 13), Some((2, 0)))
        } else if has(text, b"ifreserved") {
            range((1, 10), Some((2, 0)))
        } else {
            range((1, 4), Some((2, 0)))
        };
    }
    if has_class {
        return range((2, 5), None);
    }
    if has_cuda_class { range((1, 13), Some((2, 4))) } else { None }
}

fn has(text: &[u8], phrase: &[u8]) -> bool {
    find(text, phrase).is_some()
}

/// Reads `Allocation on device 0 would exceed allowed memory. (out of memory)` and its list of figures.
pub(super) fn cuda_malloc_async(window: &Window, message: &mut Message) -> usize {
    let text = window.after();
    message.note(Note::AsyncAllocator);
    message.gpu_index = after(window.before(), b"allocationondevice").and_then(index);
    let mut end = 0;
    let mut figure = |label: &[u8]| {
        let at = find(text, label)? + label.len();
        let figure = size(&text[at..])?;
        end = end.max(at + figure.len);
        figure.size.filter(|size| size.bytes <= MAX_GPU_BYTES)
    };
    message.allocated = figure(b"currentlyallocated:");
    message.requested = figure(b"requested:");
    message.total = figure(b"devicelimit:");
    message.free = figure(b"free(accordingtocuda):");
    // Without a limit, this is the largest representable number.
    message.allowed = figure(b"memoryfraction):");
    finish(message);
    end
}

/// Reads `MPS backend out of memory (MPS allocated: …, other allocations: …, max allowed: …). Tried to allocate …`
pub(super) fn mps(window: &Window, message: &mut Message) -> usize {
    message.kind = Kind::Mps;
    let before = window.before();
    let text = &before[before.len().saturating_sub(200)..];
    let figure = |label: &[u8]| after(text, label).and_then(size).and_then(|figure| figure.size);
    message.allocated = figure(b"mpsallocated:");
    message.allowed = figure(b"maxallowed:");
    let other = figure(b"otherallocations:");
    message.process = message.allocated.zip(other).and_then(|(own, other)| sum(own, other));
    let requested = size(window.after());
    message.requested = requested.and_then(|figure| figure.size);
    if message.requested.is_none() {
        message.note(Note::CutShort);
    }
    requested.map_or(0, |figure| figure.len)
}
