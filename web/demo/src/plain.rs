//! What is told to a page that shows no more than words: each of the worker's messages as the sentences that it comes to,
//! in that page's language.

use std::cell::RefCell;

use headroom_shared::{
    demo::{
        End, FailureKind, Tell, Wrote,
        plain::{Kind, told},
    },
    text::{self, Table, Text},
};

/// Tokens after which a rate says something.
const N_TOKENS_MIN: u32 = 8;

/// What is remembered between two messages.
#[derive(Debug)]
struct Plain {
    table: Table,
    why: String,
    n_tokens: u32,
}

thread_local! {
    static PLAIN: RefCell<Option<Plain>> = const { RefCell::new(None) };
}

/// Tells in the words of this table from now on.
pub fn begin(packed: &str) {
    PLAIN.set(Some(Plain { table: Table::unpacked(packed), why: String::new(), n_tokens: 0 }));
}

/// The messages that a page of words gets; nothing where the page is the demo's.
pub fn messages(tell: &Tell) -> Option<Vec<String>> {
    PLAIN.with_borrow_mut(|plain| plain.as_mut().map(|plain| plain.of(tell)))
}

impl Plain {
    fn of(&mut self, tell: &Tell) -> Vec<String> {
        let say = |kind, text: &Text| told(kind, &self.table.say(text));
        match tell {
            Tell::Opened(opened) => {
                self.why = self.table.say(&opened.why);
                vec![]
            }
            Tell::Progress { read_bytes, all_bytes } => {
                let hundredths = read_bytes.saturating_mul(100) / all_bytes.max(&1);
                vec![say(Kind::Progress, &text::demo_loading(format!("{hundredths} %")))]
            }
            Tell::Ready(ready) => {
                let runs = match (ready.way.is_webgpu(), ready.device.as_str()) {
                    (true, "") => text::DEMO_ON_WEBGPU_UNNAMED.into(),
                    (true, device) => text::demo_on_webgpu(device),
                    (false, instructions) => text::demo_on_cpu(instructions),
                };
                vec![told(Kind::Ready, &format!("{}. {}", self.table.say(&runs), self.why))]
            }
            Tell::Began(began) => vec![told(Kind::Began, &began.tokens.concat())],
            Tell::Wrote(wrote) => self.wrote(wrote),
            Tell::Ended(end) => {
                let n = text::count(u64::from(self.n_tokens));
                let said = match end {
                    End::Length => text::demo_ended(n),
                    End::Stopped => text::demo_stopped(n),
                };
                vec![say(Kind::Ended, &said)]
            }
            // Nobody sees it there.
            Tell::Attention(_) => vec![],
            Tell::Failed(failure) => {
                let kind = match failure.kind {
                    FailureKind::Prompt => Kind::Refused,
                    FailureKind::Replaced => Kind::Replaced,
                    FailureKind::Files | FailureKind::DoesNotFit | FailureKind::Device => Kind::Failed,
                };
                let mut words = self.table.say(&failure.text);
                if let Some(hint) = &failure.hint {
                    words = format!("{words} {}", self.table.say(&text::demo_hint(hint.clone())));
                }
                vec![told(kind, &words)]
            }
        }
    }

    fn wrote(&mut self, wrote: &Wrote) -> Vec<String> {
        self.n_tokens = wrote.n_tokens;
        let adds: String = wrote.tokens.iter().map(|token| token.adds.as_str()).collect();
        let mut messages = vec![told(Kind::Adds, &adds)];
        if wrote.n_tokens >= N_TOKENS_MIN && wrote.micros > 0 {
            let tenths = u64::from(wrote.n_tokens).saturating_mul(10_000_000) / wrote.micros;
            let rate = match (tenths / 10, tenths % 10) {
                (whole @ 0..10, tenths) => self.table.number(&format!("{whole}.{tenths}")),
                (whole, _) => self.table.grouped(whole),
            };
            messages.push(told(Kind::Rate, &self.table.say(&text::demo_rate(rate))));
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use headroom_shared::{
        demo::{Began, Failure, Ready, Token, Way, plain::heard},
        text::LANGUAGES,
    };

    use super::*;

    fn plain(language: usize) -> Plain {
        let table = Table::unpacked(&Table::packed(&LANGUAGES[language], "writes"));
        Plain { table, why: String::new(), n_tokens: 0 }
    }

    fn said(plain: &mut Plain, tell: &Tell) -> Vec<(Kind, String)> {
        let messages = plain.of(tell);
        messages
            .iter()
            .map(|message| heard(message).map(|(kind, words)| (kind, words.to_owned())).expect("known"))
            .collect()
    }

    fn wrote(n_tokens: u32, micros: u64) -> Tell {
        let token = |adds: &str| Token { id: 0, adds: adds.to_owned(), candidates: vec![] };
        Tell::Wrote(Wrote { tokens: vec![token("a"), token(" b\n")], n_tokens, micros })
    }

    #[test]
    fn a_text_is_told_in_sentences() {
        let mut plain = plain(0);
        plain.why = "Because.".to_owned();
        let progress = Tell::Progress { read_bytes: 1 << 20, all_bytes: 4 << 20 };
        assert_eq!(said(&mut plain, &progress), [(Kind::Progress, "Loading weights, 25 %".to_owned())]);
        let ready = Tell::Ready(Ready { way: Way::Cpu, device: "SIMD".to_owned(), tensors: vec![] });
        assert_eq!(said(&mut plain, &ready), [(Kind::Ready, "CPU in WebAssembly, SIMD. Because.".to_owned())]);
        let began = Tell::Began(Began { tokens: vec!["O".into(), "nce".into()], n_tokens: 2 });
        assert_eq!(said(&mut plain, &began), [(Kind::Began, "Once".to_owned())]);
        assert_eq!(said(&mut plain, &wrote(2, 9)), [(Kind::Adds, "a b\n".to_owned())]);
        let with_rate = said(&mut plain, &wrote(2000, 1_000_000));
        assert_eq!(with_rate[1], (Kind::Rate, "2,000 tokens/s".to_owned()));
        assert_eq!(said(&mut plain, &wrote(9, 2_000_000))[1].1, "4.5 tokens/s");
        assert_eq!(said(&mut plain, &Tell::Ended(End::Length)), [(Kind::Ended, "9 tokens written.".to_owned())]);
    }

    #[test]
    fn what_fails_is_told_in_every_language_with_what_it_leaves() {
        for (language, _) in LANGUAGES.iter().enumerate() {
            let mut plain = plain(language);
            for (kind, expected, text) in [
                (FailureKind::Replaced, Kind::Replaced, text::WRITES_REPLACED.into()),
                (FailureKind::Files, Kind::Failed, text::writes_broken("x")),
                (FailureKind::Prompt, Kind::Refused, text::demo_unknown_char("'é'", "abc")),
                (FailureKind::Device, Kind::Failed, text::NO_WEBGPU.into()),
                (FailureKind::DoesNotFit, Kind::Failed, text::DEMO_FITS_NOWHERE.into()),
            ] {
                let failure = Failure { kind, text, hint: Some(text::NO_WEBGPU_ADAPTER.into()) };
                let [(found, words)] = <[_; 1]>::try_from(said(&mut plain, &Tell::Failed(failure))).expect("one");
                assert_eq!(found, expected);
                assert!(words.chars().count() > 20 && !words.contains('\u{fffd}'), "{words}");
            }
        }
    }
}
