//! Encodes the figures of a message as keys of a shareable link, and decodes them.
//!
//! `oom.requested=6.14GiB&oom.total=11.69GiB`: only the figures, as printed. No other part of the text is included.

use std::fmt::Write;

use super::{Kind, Message, Size};
use headroom_text::{
    decimal,
    units::{GIB, KIB, MIB},
};

/// Prefix of each figure's key. Python identifiers cannot contain a dot, so it cannot clash with a config key.
const PREFIX: &str = "oom.";
/// Maximum number of processes encoded.
const MAX_PROCESSES: usize = 16;
/// Maximum length of a figure that is decoded.
const MAX_FIGURE_BYTES: usize = 32;

/// Encodes the figures of a message from PyTorch's allocator, to follow a link's other keys. Returns an empty string
/// for other messages.
#[must_use]
pub fn encode(message: &Message) -> String {
    let mut link = String::new();
    if message.kind != Kind::Pytorch || message.requested.is_none() {
        return link;
    }
    let reserved = message.reserved.filter(|_| message.unallocated.is_none());
    for (name, size) in [
        ("requested", message.requested),
        ("total", message.total),
        ("free", message.free),
        ("process", message.process),
        ("allocated", message.allocated),
        ("reserved", reserved),
        ("unallocated", message.unallocated),
    ] {
        if let Some(size) = size {
            let _ = write!(link, "&{PREFIX}{name}={}", printed(size));
        }
    }
    for other in message.other_processes.iter().take(MAX_PROCESSES) {
        let _ = write!(link, "&{PREFIX}other={}:{}", other.pid.unwrap_or(0), printed(other.bytes));
    }
    link
}

/// Extracts the figures from a fragment. Returns a message in PyTorch's wording with these figures, if there are any,
/// and the rest of the fragment.
#[must_use]
pub fn decode(fragment: &str) -> (Option<String>, String) {
    let (figures, rest): (Vec<&str>, Vec<&str>) = fragment.split('&').partition(|part| part.starts_with(PREFIX));
    let values = |name: &'static str| {
        figures.iter().filter_map(move |part| part.strip_prefix(PREFIX)?.strip_prefix(name)?.strip_prefix('='))
    };
    let figure = |name| values(name).next().and_then(figure_in_words);
    let text = figure("requested").map(|requested| {
        let mut text = format!("CUDA out of memory. Tried to allocate {requested}");
        match (figure("total"), figure("allocated"), figure("free"), figure("reserved")) {
            // Wording of PyTorch before 2.1.
            (Some(total), Some(allocated), Some(free), Some(reserved)) => {
                let _ = write!(
                    text,
                    " (GPU 0; {total} total capacity; {allocated} already allocated; {free} free; {reserved} reserved in \
                     total by PyTorch)"
                );
                return text;
            }
            (Some(total), _, Some(free), _) => {
                let _ = write!(text, ". GPU 0 has a total capacity of {total} of which {free} is free.");
            }
            _ => text.push('.'),
        }
        for (pid, size) in values("other").take(MAX_PROCESSES).filter_map(|other| other.split_once(':')) {
            let pid = if pid.bytes().all(|byte| byte.is_ascii_digit()) && pid.len() < 20 { pid } else { "0" };
            if let Some(size) = figure_in_words(size) {
                let _ = write!(text, " Process {pid} has {size} memory in use.");
            }
        }
        if let Some(process) = figure("process") {
            let _ = write!(text, " Including non-PyTorch memory, this process has {process} memory in use.");
        }
        if let Some(allocated) = figure("allocated") {
            let _ = write!(text, " Of the allocated memory {allocated} is allocated by PyTorch");
            if let Some(unallocated) = figure("unallocated") {
                let _ = write!(text, ", and {unallocated} is reserved by PyTorch but unallocated");
            }
            text.push('.');
        }
        text
    });
    (text, rest.join("&"))
}

/// Converts `6.14GiB` to `6.14 GiB`. Returns `None` unless the input is a number with a unit.
fn figure_in_words(figure: &str) -> Option<String> {
    let digits = figure.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|at| *at > 0)?;
    let (number, unit) = figure.split_at(digits);
    let is_unit = ["bytes", "KiB", "MiB", "GiB", "TiB"].contains(&unit);
    (is_unit && figure.len() <= MAX_FIGURE_BYTES).then(|| format!("{number} {unit}"))
}

/// Formats a size with its original unit and number of decimals.
fn printed(size: Size) -> String {
    let units = [("KiB", KIB), ("MiB", MIB), ("GiB", GIB), ("TiB", KIB * GIB)];
    let as_printed = units.into_iter().find_map(|(name, unit)| {
        let decimals = (0..=4_u32).find(|decimals| unit.div_ceil(10_u64.pow(*decimals)) == size.resolution_bytes)?;
        Some(decimal::ratio(size.bytes, unit, decimals) + name)
    });
    as_printed.filter(|_| size.resolution_bytes > 1).unwrap_or_else(|| format!("{}bytes", size.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oom::{OtherProcess, read};

    const GOLDEN: &str = include_str!("../../../../tests/golden/oom/messages.txt");

    type Figures = ([Option<Size>; 7], Vec<OtherProcess>, Option<usize>);

    fn figures(message: &Message) -> Figures {
        let Message { requested, total, free, process, allocated, reserved, unallocated, .. } = *message;
        let sizes = [requested, total, free, process, allocated, reserved, unallocated];
        (sizes, message.other_processes.clone(), message.own_process)
    }

    #[test]
    fn golden_figures_survive_a_link() {
        let mut n_messages = 0;
        for text in GOLDEN.split("\n---\n").skip(1) {
            let Some(message) = read(text).first.filter(|message| message.total.is_some() && message.free.is_some())
            else {
                continue;
            };
            let link = encode(&message);
            let (Some(words), rest) = decode(&format!("1&batch_size=8{link}&gpu=L4")) else { continue };
            assert_eq!(rest, "1&batch_size=8&gpu=L4");
            let again = read(&words).first.expect("a message");
            // Like versions from 2.1 on, PyTorch before 1.4 prints the unallocated memory.
            assert_eq!(figures(&again), figures(&message), "{words}");
            assert_eq!(encode(&again), link);
            n_messages += 1;
        }
        assert!(n_messages >= 20, "{n_messages}");
    }

    #[test]
    fn a_link_carries_nothing_but_figures() {
        let text = "secret-host CUDA out of memory. Tried to allocate 2.00 GiB my-token (GPU 0; 8.00 GiB total capacity; 6.00 \
                    GiB already allocated; 1.00 GiB free; 6.50 GiB reserved in total by PyTorch)";
        let link = encode(&read(text).first.expect("a message"));
        assert_eq!(
            link,
            "&oom.requested=2.00GiB&oom.total=8.00GiB&oom.free=1.00GiB&oom.allocated=6.00GiB&oom.reserved=6.50GiB"
        );
        assert_eq!(decode("1&batch_size=8"), (None, "1&batch_size=8".to_owned()));
        for bad in ["1&oom.requested=", "1&oom.requested=<b>", "1&oom.requested=1e9GiB", "1&oom.requested=GiB"] {
            assert_eq!(decode(bad).0, None, "{bad}");
        }
    }
}
