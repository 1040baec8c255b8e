//! Who uses the cards, by memory.

use headroom_shared::protocol::{
    gpu::Process,
    reading::{Reading, Why},
    run::Run,
};

use super::{Rig, card::Card, run::is_at_work, words};
use crate::state::format;

/// Rows at most: more nobody reads.
const ROWS_MAX: usize = 100;

/// A process on a card.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// As the host counts them.
    pub pid: u32,
    /// What it is.
    pub name: String,
    /// Whose.
    pub user: String,
    /// The card, where there are several.
    pub card: String,
    /// What it has, or why that is not known.
    pub memory: String,
    /// Whether that is known.
    pub is_known: bool,
    /// Of the card's memory, in percent.
    pub percent: f64,
    /// The run it belongs to.
    pub run: Option<String>,
}

/// All that are known, those with the most memory first.
pub fn rows(rig: &Rig) -> Vec<Row> {
    let mut all: Vec<(u64, Row)> = Vec::new();
    // Of a card that does not answer nobody knows who uses it.
    for card in rig.cards.iter().filter(|card| card.gpu.present) {
        for process in processes(card) {
            let bytes = process.memory_used_bytes.get().copied();
            let row = Row {
                pid: process.pid,
                name: words::reading(Some(&process.name), Clone::clone),
                user: words::reading(Some(&process.user), Clone::clone),
                card: if rig.cards.len() > 1 { words::card_name(rig, &card.gpu.uuid) } else { String::new() },
                memory: words::reading(Some(&process.memory_used_bytes), |bytes| format::size(*bytes)),
                is_known: bytes.is_some(),
                percent: share(bytes.unwrap_or(0), card) * 100.0,
                run: process.run.as_ref().map(|run| words::run_name(rig, run)),
            };
            all.push((bytes.unwrap_or(0), row));
        }
    }
    all.sort_by_key(|(bytes, row)| (std::cmp::Reverse(*bytes), row.pid));
    all.truncate(ROWS_MAX);
    all.into_iter().map(|(_, row)| row).collect()
}

/// Why no process is known of any card; nothing where some card tells.
pub fn why_none(rig: &Rig) -> Option<Why> {
    let of = |card: &Card| card.slow.as_ref().map_or(Some(Why::NotYet), |slow| slow.processes.why());
    let first = rig.cards.first().and_then(of);
    if rig.cards.iter().any(|card| of(card).is_none()) { None } else { first }
}

fn processes(card: &Card) -> &[Process] {
    card.slow.as_ref().and_then(|slow| slow.processes.get()).map_or(&[], Vec::as_slice)
}

fn share(bytes: u64, card: &Card) -> f64 {
    card.total_bytes().map_or(0.0, |total| (bytes as f64 / total as f64).min(1.0))
}

/// What a run's processes have of a card; nothing where that is not known.
pub fn bytes_of_run(card: &Card, run: &str) -> Option<u64> {
    let own = processes(card).iter().filter(|process| process.run.as_deref() == Some(run));
    let known = own.filter_map(|process| match &process.memory_used_bytes {
        Reading::Is(bytes) => Some(*bytes),
        Reading::Missing { .. } => None,
    });
    known.fold(None, |sum: Option<u64>, bytes| Some(sum.unwrap_or(0).saturating_add(bytes)))
}

/// Why it is not known what a run's processes have of a card; nothing where it is, or where it has none there.
pub fn why_no_bytes(card: &Card, run: &str) -> Option<Why> {
    match &card.slow.as_ref()?.processes {
        Reading::Missing { missing } => Some(*missing),
        Reading::Is(all) => {
            all.iter().find(|process| process.run.as_deref() == Some(run)).and_then(|own| own.memory_used_bytes.why())
        }
    }
}

/// The run that goes on a card now.
pub fn run_on<'a>(rig: &'a Rig, card: &Card) -> Option<&'a Run> {
    let runs = rig.runs.iter().map(|watched| &watched.run);
    runs.into_iter().find(|run| is_at_work(run) && run.gpus.contains(&card.gpu.uuid))
}

/// What is used of a card by all but the run on it; nothing where it is not known whose it is.
pub fn bytes_of_others(card: &Card, own: Option<&Run>) -> Option<u64> {
    let used = card.sample.as_ref()?.memory_used_bytes.get().copied()?;
    let own = own.map_or(Some(0), |run| bytes_of_run(card, &run.id))?;
    Some(used.saturating_sub(own))
}

/// Where the bar of a card's memory is marked: what others have, and the peak that is predicted for the run on it.
pub fn predicted_bytes(rig: &Rig, card: &Card) -> Option<u64> {
    let run = run_on(rig, card)?;
    let peak = run.plan.as_ref()?.peak_bytes;
    Some(peak.saturating_add(bytes_of_others(card, Some(run)).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::rig::sample::{gpu, run, sample, slow};
    use headroom_shared::protocol::ServerMessage;

    fn rig() -> Rig {
        let mut rig = Rig::default();
        let hello = crate::state::rig::sample::hello(2, vec![run("a")], 0);
        rig.hear(ServerMessage::Hello(Box::new(hello)), false);
        rig.hear(ServerMessage::Slow(slow(&[(0, 10, Some(1 << 30), None), (1, 11, Some(3 << 30), None)])), false);
        rig
    }

    #[test]
    fn the_greatest_comes_first_whatever_its_card() {
        let rows = rows(&rig());
        assert_eq!(rows.iter().map(|row| row.pid).collect::<Vec<_>>(), [11, 10]);
        assert!(rows[0].card.starts_with("1: ") && rows[0].percent > 20.0);
    }

    #[test]
    fn memory_that_windows_hides_is_said_to_be_hidden() {
        let mut rig = rig();
        rig.hear(ServerMessage::Slow(slow(&[(0, 10, None, None)])), false);
        let row = rows(&rig).into_iter().find(|row| row.pid == 10).expect("a row");
        assert!(!row.is_known && row.memory.contains("Windows"), "{row:?}");
        assert_eq!(bytes_of_run(&rig.cards[0], "a"), None);
    }

    #[test]
    fn the_mark_is_the_prediction_above_what_others_have() {
        let mut rig = rig();
        rig.cards[0].sample = Some(sample(0, 1));
        let used = 7_u64 << 30;
        let peak = rig.runs[0].run.plan.clone().expect("a plan").peak_bytes;
        assert_eq!(predicted_bytes(&rig, &rig.cards[0]), Some(peak), "whose memory it is is not known");
        rig.hear(ServerMessage::Slow(slow(&[(0, 10, Some(6 << 30), Some("a"))])), false);
        assert_eq!(predicted_bytes(&rig, &rig.cards[0]), Some(peak + used - (6 << 30)));
        assert_eq!(predicted_bytes(&rig, &Card::new(gpu(1))), None, "no run is on that one");
    }
}
