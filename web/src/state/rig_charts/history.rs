//! The history chart as a whole: card, subject, range, requests, and how it stands.

use headroom_shared::protocol::{
    gpu::Gpu,
    history::{Group, History},
};

use super::{
    feed::{Ask, Feed, Wanted, points_for},
    kind::Kind,
    plot::{Frame, Planned, Plot},
    reading::{self, Row, Said},
    view::{Range, View},
    zone::Zone,
};
use crate::text::{self, Key, Text};

/// What a person chose, and what came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Charted {
    /// The range.
    pub view: View,
    /// The subject.
    pub kind: Kind,
    /// The card that was chosen, by its UUID; else it is the first.
    pub gpu: Option<String>,
    /// What is drawn: the range of the last answer, so that a drawing stands still between two of them.
    pub drawn: Option<Range>,
    /// Width of the plot when it was last drawn.
    pub width_px: f64,
    feed: Feed,
}

/// How a chart stands, in the order in which one thing hides another.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// There is no card to ask for.
    NoCard,
    /// What is wanted is not there, and why.
    Failed(Text),
    /// It is under way.
    Loading,
    /// There is nothing in this range.
    Nothing,
    /// The card has a history, and nothing of this subject.
    NotGiven,
    /// It is drawn.
    Drawn,
}

impl Standing {
    /// What is said over the plot.
    pub fn words(&self) -> Option<Text> {
        let key: Key = match self {
            Self::NoCard => text::HISTORY_NO_CARD,
            Self::Failed(why) => return Some(why.clone()),
            Self::Loading => text::HISTORY_LOADING,
            Self::Nothing => text::HISTORY_NOTHING,
            Self::NotGiven => text::HISTORY_NOT_GIVEN,
            Self::Drawn => return None,
        };
        Some(key.into())
    }
}

impl Charted {
    /// The card that is shown, of those there are. One that was chosen and is gone comes back when it does.
    pub fn card<'a>(&self, gpus: &'a [Gpu]) -> Option<&'a Gpu> {
        let chosen = self.gpu.as_ref().and_then(|uuid| gpus.iter().find(|gpu| gpu.uuid == *uuid));
        chosen.or_else(|| gpus.first())
    }

    /// Which readings are shown, and of whom: the machine has them without a card.
    fn subject<'a>(&self, gpus: &'a [Gpu]) -> Option<(Group, &'a str)> {
        let group = self.kind.group();
        Some((group, if group == Group::Host { "" } else { &self.card(gpus)?.uuid }))
    }

    fn wanted(&self, gpus: &[Gpu]) -> Option<Wanted> {
        let (group, gpu) = self.subject(gpus)?;
        Some(Wanted { group, gpu: gpu.to_owned(), window: self.view.window, n_points: points_for(self.width_px) })
    }

    /// Makes a change to what is looked at, and draws its range at once, of what is there.
    pub fn look<T>(&mut self, newest_ms: u64, change: impl FnOnce(&mut View, Range) -> T) -> T {
        let range = self.range(newest_ms);
        let before = self.view.window;
        let changed = change(&mut self.view, range);
        if self.view.window != before {
            self.drawn = Some(self.view.window.range(newest_ms));
        }
        changed
    }

    /// The range that is drawn.
    pub fn range(&self, newest_ms: u64) -> Range {
        self.drawn.unwrap_or_else(|| self.view.window.range(newest_ms))
    }

    /// The request to make now. The newest time is the agent's, 0 where it is not known yet.
    pub fn ask(&mut self, gpus: &[Gpu], newest_ms: u64, clock_ms: f64, width_px: f64) -> Option<Ask> {
        if newest_ms == 0 {
            return None;
        }
        self.width_px = width_px;
        let wanted = self.wanted(gpus)?;
        self.feed.ask(&wanted, newest_ms, clock_ms)
    }

    /// How long to wait before [`Self::ask`] could have a request that it held back.
    pub fn rest_ms(&self, clock_ms: f64) -> f64 {
        self.feed.rest_ms(clock_ms)
    }

    /// Takes the answer to a request.
    pub fn take(&mut self, number: u64, answer: Result<String, String>, clock_ms: f64) {
        let range = self.feed.take(number, answer, clock_ms);
        // A window chosen since then keeps its range; its own answer is under way.
        self.drawn = range.filter(|range| range.span_ms() == self.view.window.span_ms).or(self.drawn);
    }

    /// Lets what failed be asked for at once.
    pub fn try_again(&mut self) {
        self.feed.try_again();
    }

    /// What is kept of what is looked at.
    pub fn history(&self, gpus: &[Gpu], newest_ms: u64) -> Option<&History> {
        let (group, gpu) = self.subject(gpus)?;
        self.feed.best(group, gpu, self.range(newest_ms))
    }

    /// The drawing.
    pub fn plot(&self, gpus: &[Gpu], planned: &[(String, Planned)], newest_ms: u64, zone: Zone) -> Plot {
        let card = self.card(gpus);
        let planned = planned.iter().find(|(uuid, _)| card.is_some_and(|card| card.uuid == *uuid));
        let frame = Frame { range: self.range(newest_ms), kind: self.kind, width_px: self.width_px, zone };
        Plot::of(self.history(gpus, newest_ms), card, planned.map(|(_, planned)| *planned), &frame)
    }

    /// How it stands.
    pub fn standing(&self, gpus: &[Gpu], newest_ms: u64, plot: &Plot) -> Standing {
        let Some(wanted) = self.wanted(gpus) else { return Standing::NoCard };
        match self.feed.failure(&wanted) {
            Some(why) if plot.is_empty => Standing::Failed(why.clone()),
            _ if !plot.is_empty => Standing::Drawn,
            _ if !self.feed.has_answered(&wanted) => Standing::Loading,
            _ if self.history(gpus, newest_ms).is_some_and(|history| !history.times_ms.is_empty()) => {
                Standing::NotGiven
            }
            _ => Standing::Nothing,
        }
    }

    /// Why what is drawn could not be brought up to date; nothing where it is, or where nothing is drawn.
    pub fn stale(&self, gpus: &[Gpu]) -> Option<Text> {
        self.feed.failure(&self.wanted(gpus)?).cloned()
    }

    /// What is under a cursor: where that is, and the words.
    pub fn reading(&self, gpus: &[Gpu], newest_ms: u64, share: f64, zone: Zone) -> (f64, Said) {
        let range = self.range(newest_ms);
        let found = reading::at(self.history(gpus, newest_ms), self.kind, range, share);
        (range.share(found.time_ms).clamp(0.0, 1.0), found.said(self.kind, range, zone))
    }

    /// The range in words.
    pub fn summary(&self, gpus: &[Gpu], newest_ms: u64, zone: Zone) -> Said {
        reading::summary(self.history(gpus, newest_ms), self.kind, self.range(newest_ms), zone)
    }

    /// The range in a table.
    pub fn table(&self, gpus: &[Gpu], newest_ms: u64, zone: Zone) -> Vec<Row> {
        reading::table(self.history(gpus, newest_ms), self.kind, self.range(newest_ms), zone)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            fold,
            view::{SPANS_MS, Window},
        },
        *,
    };
    use headroom_shared::protocol::reading::{Reading, Why};

    const NOW: u64 = 1_795_000_000_000;
    const UTC: Zone = Zone(|_| 0);

    fn gpu(uuid: &str) -> Gpu {
        Gpu {
            index: 0,
            uuid: uuid.to_owned(),
            name: "NVIDIA GeForce RTX 4070".to_owned(),
            present: true,
            memory_total_bytes: Reading::Is(12 << 30),
            compute_capability: Reading::Is((8, 9)),
            power_limit_watts: Reading::Is(200.0),
            power_limit_max_watts: Reading::missing(Why::NotSupported),
            temperature_slowdown_celsius: Reading::Is(90),
            temperature_shutdown_celsius: Reading::missing(Why::NotSupported),
            clock_sm_max_mhz: Reading::Is(3105),
            clock_memory_max_mhz: Reading::Is(10_501),
            mig_enabled: Reading::Is(false),
            nvlinks_active: Reading::Is(0),
            pci_bus_id: Reading::Is("0000:01:00.0".to_owned()),
            listed_as: None,
        }
    }

    /// An answer with a value every ten seconds.
    fn answer(uuid: &str, range: Range, value: Option<f64>) -> Result<String, String> {
        let n = range.span_ms() / 10_000;
        let points: Vec<(u64, Option<f64>)> =
            (0..n.min(1000)).map(|index| (range.from_ms + index * 10_000, value)).collect();
        let mut history = fold::tests::history(10_000, &points);
        (history.gpu, history.from_ms, history.to_ms) = (uuid.to_owned(), range.from_ms, range.to_ms);
        Ok(serde_json::to_string(&history).expect("a history is JSON"))
    }

    fn standing(charted: &Charted, gpus: &[Gpu]) -> Standing {
        charted.standing(gpus, NOW, &charted.plot(gpus, &[], NOW, UTC))
    }

    #[test]
    fn a_chart_says_how_it_stands() {
        let gpus = [gpu("GPU-1")];
        let mut charted = Charted::default();
        assert_eq!(standing(&charted, &[]), Standing::NoCard);
        assert_eq!(charted.ask(&gpus, 0, 0.0, 1200.0), None, "the agent's time is not known yet");
        assert_eq!(standing(&charted, &gpus), Standing::Loading);
        let ask = charted.ask(&gpus, NOW, 0.0, 1200.0).expect("a request");
        charted.take(ask.number, Err("503".to_owned()), 100.0);
        assert!(matches!(standing(&charted, &gpus), Standing::Failed(_)));
        charted.try_again();
        let ask = charted.ask(&gpus, NOW, 1000.0, 1200.0).expect("another");
        let range = charted.range(NOW);
        charted.take(ask.number, answer("GPU-1", range, None), 1100.0);
        assert_eq!(standing(&charted, &gpus), Standing::NotGiven);
        let ask = charted.ask(&gpus, NOW, 100_000.0, 1200.0).expect("what follows is asked for anew");
        charted.take(ask.number, answer("GPU-1", range, Some(5e9)), 101_000.0);
        assert_eq!((standing(&charted, &gpus), charted.stale(&gpus)), (Standing::Drawn, None));
        let ask = charted.ask(&gpus, NOW, 200_000.0, 1200.0).expect("and again");
        charted.take(ask.number, Err("503".to_owned()), 201_000.0);
        assert_eq!(standing(&charted, &gpus), Standing::Drawn, "what was drawn stays");
        assert!(charted.stale(&gpus).is_some());
    }

    #[test]
    fn a_nearer_look_is_drawn_at_once_of_what_is_there() {
        let gpus = [gpu("GPU-1")];
        let mut charted = Charted::default();
        let ask = charted.ask(&gpus, NOW, 0.0, 1200.0).expect("a request");
        charted.take(ask.number, answer("GPU-1", charted.range(NOW), Some(5e9)), 100.0);
        assert!(charted.look(NOW, |view, drawn| view.zoom(drawn, 0.25, 0.5, NOW)));
        assert_eq!(charted.range(NOW).span_ms(), SPANS_MS[0] / 4);
        assert_eq!(standing(&charted, &gpus), Standing::Drawn);
        // An answer to what is no longer looked at changes nothing of what is drawn.
        let drawn = charted.range(NOW);
        charted.take(ask.number, answer("GPU-1", drawn, Some(9e9)), 200.0);
        assert_eq!(charted.range(NOW), drawn);
        assert!(charted.look(NOW, |view, _| view.back()));
        assert_eq!(charted.range(NOW), Window { span_ms: SPANS_MS[0], end_ms: None }.range(NOW));
    }

    #[test]
    fn a_card_that_was_chosen_and_is_gone_comes_back() {
        let gpus = [gpu("GPU-1"), gpu("GPU-2")];
        let charted = Charted { gpu: Some("GPU-2".to_owned()), ..Charted::default() };
        assert_eq!(charted.card(&gpus).map(|gpu| gpu.uuid.as_str()), Some("GPU-2"));
        assert_eq!(charted.card(&gpus[..1]).map(|gpu| gpu.uuid.as_str()), Some("GPU-1"));
        assert!(charted.card(&[]).is_none());
    }

    #[test]
    fn the_plans_peak_is_drawn_on_its_own_card_alone() {
        let gpus = [gpu("GPU-1")];
        let mut charted = Charted::default();
        let ask = charted.ask(&gpus, NOW, 0.0, 1200.0).expect("a request");
        charted.take(ask.number, answer("GPU-1", charted.range(NOW), Some(5e9)), 100.0);
        let limits = |uuid: &str| {
            let planned = Planned { bytes: 9 << 30, from_ms: NOW - 1000 };
            charted.plot(&gpus, &[(uuid.to_owned(), planned)], NOW, UTC).limits.len()
        };
        assert_eq!(limits("GPU-1"), 2);
        assert_eq!(limits("GPU-2"), 1);
    }
}
