//! Every number of the page, as text and in bytes, to compare two windows.

use crate::page::Page;
use serde::Deserialize;

/// The numbers that a user reads on the page.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Numbers {
    /// The verdict's first line.
    pub verdict: String,
    /// The sentence after it.
    pub detail: String,
    /// Bytes left at the peak, negative if the run does not fit.
    pub headroom_bytes: i64,
    /// The figures beside the verdict: visible text and tooltip.
    pub figures: Vec<[String; 2]>,
    /// The table of phases.
    pub phases: Vec<Phase>,
    /// The listed tensors, each as text and in bytes.
    pub tensors: Vec<(String, u64)>,
    /// PyTorch's message if the run fails.
    pub message: Option<String>,
}

/// A row of the table of phases.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Phase {
    /// The phase's name in JSON.
    pub name: String,
    /// The row's text.
    pub text: String,
    /// Peak of live bytes, `max_memory_allocated` and `max_memory_reserved`, in bytes.
    pub bytes: [u64; 3],
}

const READ: &str = "(() => {
    const text = (element) => element.textContent.replace(/\\s+/g, ' ').trim();
    const all = (selector) => [...document.querySelectorAll(selector)];
    const verdict = document.querySelector('#verdict');
    return {
        verdict: text(verdict),
        detail: text(document.querySelector('#verdict-detail')),
        headroom_bytes: Number(verdict.dataset.headroomBytes),
        figures: all('.figures__figure').map((figure) => [text(figure), figure.title]),
        phases: all('#phases tbody tr').map((row) => ({
            name: row.dataset.phase,
            text: text(row),
            bytes: [...row.querySelectorAll('td')].map((cell) => Number(cell.dataset.bytes)),
        })),
        tensors: all('#tensors [data-bytes]').map((line) => [text(line), Number(line.dataset.bytes)]),
        message: document.querySelector('#oom-message')?.textContent.trim() ?? null,
    };
})()";

impl Numbers {
    pub async fn read(page: &Page) -> Self {
        page.until("no slider moves", "document.querySelector('.phases').ariaBusy === 'false'").await;
        let numbers: Self = page.value(READ).await;
        // Two empty lists would compare as equal.
        assert!(numbers.figures.len() >= 5 && numbers.phases.len() >= 10, "{numbers:?}");
        assert!(!numbers.tensors.is_empty(), "{numbers:?}");
        numbers
    }
}

/// Returns the first difference between two windows, or `None`.
pub fn difference(one: &Numbers, other: &Numbers) -> Option<String> {
    let differs = |what: &str, one: &dyn std::fmt::Debug, other: &dyn std::fmt::Debug| {
        let (one, other) = (format!("{one:?}"), format!("{other:?}"));
        (one != other).then(|| format!("{what}: {one} against {other}"))
    };
    differs("the verdict", &one.verdict, &other.verdict)
        .or_else(|| differs("its detail", &one.detail, &other.detail))
        .or_else(|| differs("what is left", &one.headroom_bytes, &other.headroom_bytes))
        .or_else(|| differs("a figure", &one.figures, &other.figures))
        .or_else(|| differs("the phases", &one.phases, &other.phases))
        .or_else(|| differs("the tensors", &one.tensors, &other.tensors))
        .or_else(|| differs("the message", &one.message, &other.message))
}

#[track_caller]
pub fn assert_same(one: &Numbers, other: &Numbers) {
    if let Some(difference) = difference(one, other) {
        panic!("two windows differ in {difference}");
    }
}

/// The comparison detects any single changed number.
#[test]
fn a_falsified_number_is_found() {
    let phase = Phase { name: "eval".to_owned(), text: "evaluation 1.50 GiB".to_owned(), bytes: [1, 2, 3] };
    let honest = Numbers {
        verdict: "Fits: 1.02 GiB left".to_owned(),
        detail: "The peak is in evaluation.".to_owned(),
        headroom_bytes: 1_095_216_660,
        figures: vec![["allocated 9.1 GiB".to_owned(), "9,771,050,598 bytes".to_owned()]],
        phases: vec![phase.clone(), phase],
        tensors: vec![("logits 2.3 GiB".to_owned(), 2_469_606_195)],
        message: None,
    };
    assert_eq!(difference(&honest, &honest.clone()), None);
    type Falsify = fn(&mut Numbers);
    let falsifications: [(&str, Falsify); 7] = [
        ("the verdict", |numbers| numbers.verdict = "Fits: 1.03 GiB left".to_owned()),
        ("its detail", |numbers| numbers.detail.clear()),
        ("what is left", |numbers| numbers.headroom_bytes += 1),
        ("a figure", |numbers| numbers.figures[0][1] = "9,771,050,599 bytes".to_owned()),
        ("the phases", |numbers| numbers.phases[1].bytes[2] += 1),
        ("the tensors", |numbers| numbers.tensors[0].1 -= 1),
        ("the message", |numbers| numbers.message = Some(String::new())),
    ];
    for (what, falsify) in falsifications {
        let mut false_one = honest.clone();
        falsify(&mut false_one);
        let found = difference(&honest, &false_one).expect("a falsified number is found");
        assert!(found.starts_with(what), "{found} instead of {what}");
    }
}
