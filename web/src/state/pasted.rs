//! The Diagnose page's address: the run's link, followed by the message's figures.

use headroom_planner::{
    link::{self, set_flag},
    oom::{self, Message},
    session::Options,
};

use super::{excerpt, needs::named_changes, read_settings, session::Session};

/// The content of the page's two fields, with the options of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastedText {
    /// The text with the message.
    pub message: String,
    /// The config, or a command.
    pub config: String,
    /// The settings outside nanoGPT's config.
    pub options: Options,
}

impl PastedText {
    /// Restores the fields from an address. `kept` is the message and the config from when the page was left. It is
    /// used if its message has the same figures. `kept_text` is a run's fragment and the text that it was made from.
    pub fn open(fragment: &str, kept: Option<(String, String)>, kept_text: Option<(&str, &str)>) -> Self {
        let fragment = fragment.strip_prefix('#').unwrap_or(fragment);
        let (words, run) = oom::link::decode(fragment);
        let opened = Session::open(&run, kept_text).map(|opened| opened.session);
        let options = opened.as_ref().map(|session| session.options.clone()).unwrap_or_default();
        let has_message = words.is_some();
        // The calculator's initial run counts as empty, unless the link has a message.
        let own = opened.filter(|session| has_message || !session.is_untouched()).map(|session| session.text);
        let (kept_message, kept_config) = kept.unwrap_or_default();
        let is_same = words.as_ref().is_none_or(|words| figures(&kept_message) == figures(words));
        let mut opened = match is_same {
            true => {
                // A config that was left here earlier is not that of another run in the address.
                let is_other = |own: &String| kept_config.is_empty() || settings(own) != settings(&kept_config);
                let config = own.filter(is_other).unwrap_or(kept_config.clone());
                Self { message: kept_message, config, options }
            }
            false => Self { message: words.unwrap_or_default(), config: own.unwrap_or_default(), options },
        };
        opened.place_message();
        opened
    }

    /// Sets a new config. The changes to nanoGPT's code that its comments name are assumed.
    pub fn set_config(&mut self, config: String) {
        named_changes(&config).for_each(|name| set_flag(&mut self.options, name));
        self.config = config;
        self.place_message();
    }

    /// Moves a message from the config's field to its own, if that is empty.
    pub fn place_message(&mut self) {
        if self.message.trim().is_empty() && oom::read(&self.config).first.is_some() {
            self.message = std::mem::take(&mut self.config);
        }
    }

    /// The fragment, without `#`, of a run and the figures of a message.
    pub fn fragment(run: Option<String>, message: Option<&Message>) -> String {
        let figures = message.map(oom::link::encode).unwrap_or_default();
        match run {
            Some(run) => run + &figures,
            None if figures.is_empty() => String::new(),
            None => format!("1{figures}"),
        }
    }

    /// The run's part of the fragment, as other pages use it; `None` without a config. `session` is the run on the
    /// message's GPU, if the config is valid.
    pub fn run_fragment(&self, session: Option<&Session>) -> Option<String> {
        let own = || {
            let is_short = !self.config.trim().is_empty() && !excerpt::is_long(&self.config);
            is_short.then(|| Session::new(self.config.clone(), self.options.clone()).fragment())
        };
        session.map(Session::fragment).or_else(own)
    }
}

/// The settings of a config, in a link's format.
fn settings(text: &str) -> String {
    link::encode(&read_settings(text), &Options::default())
}

/// The figures of the first message in a text, in a link's format.
fn figures(text: &str) -> String {
    oom::read(text).first.as_ref().map(oom::link::encode).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{state::diagnosis::shown, text::EXAMPLE_MESSAGE};

    fn fragment(pasted: &PastedText) -> String {
        let shown = shown(&pasted.message, &pasted.config, &pasted.options).expect("an answer");
        PastedText::fragment(pasted.run_fragment(shown.session.as_ref()), shown.message.as_ref())
    }

    #[test]
    fn an_address_carries_the_run_and_the_figures_and_no_text() {
        let pasted = PastedText {
            message: format!("my-host: {EXAMPLE_MESSAGE}"),
            config: "batch_size = 64  # mine\n".into(),
            ..PastedText::default()
        };
        let address = fragment(&pasted);
        assert!(!address.contains("mine") && !address.contains("my-host"), "{address}");
        let opened = PastedText::open(&address, None, None);
        assert_eq!(opened.config, "batch_size = 64\n");
        assert_eq!(fragment(&opened), address);
        let answer = |pasted: &PastedText| shown(&pasted.message, &pasted.config, &pasted.options).expect("an answer");
        assert_eq!(answer(&opened).sentence, answer(&pasted).sentence);
        assert_eq!(answer(&opened).parts, answer(&pasted).parts);
    }

    #[test]
    fn a_message_without_a_config_has_an_address_without_one() {
        let pasted = PastedText { message: EXAMPLE_MESSAGE.into(), ..PastedText::default() };
        let address = fragment(&pasted);
        let opened = PastedText::open(&address, None, None);
        assert_eq!(opened.config, "");
        assert_eq!(fragment(&opened), address);
        assert_eq!(PastedText::fragment(PastedText::default().run_fragment(None), None), "");
    }

    #[test]
    fn message_in_the_config_field_moves_to_its_own() {
        let mut pasted = PastedText { config: EXAMPLE_MESSAGE.into(), ..PastedText::default() };
        pasted.place_message();
        assert_eq!((pasted.message.as_str(), pasted.config.as_str()), (EXAMPLE_MESSAGE, ""));
        let mut pasted = PastedText { config: "batch_size = 64\n".into(), ..PastedText::default() };
        pasted.place_message();
        assert_eq!((pasted.message.as_str(), pasted.config.as_str()), ("", "batch_size = 64\n"));
        // The calculator's text, as the header's link carries it.
        let opened = PastedText::open("1&config=%3F", None, Some(("1&config=%3F", EXAMPLE_MESSAGE)));
        assert_eq!((opened.message.as_str(), opened.config.as_str()), (EXAMPLE_MESSAGE, ""));
    }

    #[test]
    fn pasted_text_is_kept_per_address() {
        let pasted = PastedText {
            message: EXAMPLE_MESSAGE.into(),
            config: "batch_size = 64  # mine\n".into(),
            ..PastedText::default()
        };
        let address = fragment(&pasted);
        let kept = (format!("more\n{EXAMPLE_MESSAGE}"), pasted.config.clone());
        let opened = PastedText::open(&address, Some(kept.clone()), None);
        assert_eq!((opened.message, opened.config), kept.clone());
        // The address of another run does not restore the kept config.
        let other = address.replace("batch_size=64", "batch_size=32");
        let opened = PastedText::open(&other, Some(kept.clone()), None);
        assert_eq!((opened.message, opened.config.as_str()), (kept.0.clone(), "batch_size = 32\n"));
        // The address of another message does not restore the kept message.
        let other = address.replace("oom.requested=6.14GiB", "oom.requested=6.00GiB");
        let opened = PastedText::open(&other, Some(kept), None);
        assert!(opened.message.contains("6.00 GiB") && opened.config == "batch_size = 64\n", "{opened:?}");
    }
}
