//! What a person gave: the one source of truth that the text, the form and the link all show.

use headroom_shared::{
    link,
    nanogpt::{Value, from_pasted_text, without_outdated_comments},
    session::Options,
};

use super::{card, edit, needs, presets};

/// What a config is called in messages where it came without a name.
pub const CONFIG_NAME: &str = "config.py";

/// A run on a card, as given.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// A config, a command or a log.
    pub text: String,
    /// Everything that nanoGPT's config does not hold.
    pub options: Options,
}

impl Default for Session {
    /// nanoGPT's own GPT-2 run on the default card.
    fn default() -> Self {
        Self { text: presets::RUNS[0].text.to_owned(), options: Options::default() }
    }
}

/// A session that a link held.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// The session.
    pub session: Session,
    /// Parts of the link that this version does not know.
    pub unknown: Vec<String>,
    /// The link's version where it is later than ours.
    pub later_version: Option<u32>,
    /// Whether the link names a GPU or its memory.
    pub names_gpu: bool,
}

impl Session {
    /// Opens a URL's fragment; `None` where it is no link of ours.
    ///
    /// `kept` is a fragment with the text it was made of: a link carries values but no comments, so a reload of the
    /// same page brings the text back as it was.
    pub fn open(fragment: &str, kept: Option<(&str, &str)>) -> Option<Opened> {
        let fragment = fragment.strip_prefix('#').unwrap_or(fragment);
        if !fragment.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let link = link::decode(fragment);
        let text = match kept {
            Some((of, text)) if of == fragment => text.to_owned(),
            _ => link.config,
        };
        let session = Self { text, options: link.options };
        let names_gpu = fragment.split('&').any(|part| part.starts_with("gpu=") || part.starts_with("vram="));
        Some(Opened { session, unknown: link.unknown, later_version: link.later_version, names_gpu })
    }

    /// Takes the GPU that was chosen on this device before, where it is still known.
    pub fn prefer_gpu(&mut self, kept: Option<&str>) {
        if let Some(name) = kept.filter(|name| card::is_known(name)) {
            card::set(&mut self.options, name);
        }
    }

    /// Whether the text is what the calculator starts with.
    pub fn is_untouched(&self) -> bool {
        let run = |text: &str| link::encode(&from_pasted_text(CONFIG_NAME, text).read(), &Options::default());
        run(&self.text) == run(presets::RUNS[0].text)
    }

    /// The fragment, without `#`, that opens to this session.
    pub fn fragment(&self) -> String {
        link::encode(&from_pasted_text(CONFIG_NAME, &self.text).read(), &self.options)
    }

    /// Takes a new text. A command's torchrun says how many processes there are; a text without one takes that back.
    pub fn set_text(&mut self, text: String) {
        let text = without_outdated_comments(&self.text, &text).unwrap_or(text);
        let before = processes(&self.text);
        let now = processes(&text);
        if before != now {
            self.options.world_size = now.unwrap_or(1);
        }
        self.text = text;
    }

    /// Changes options. A comment in the text names the changes to nanoGPT's code that they assume.
    pub fn set_options(&mut self, change: impl FnOnce(&mut Options)) {
        change(&mut self.options);
        self.text = needs::noted(self);
    }

    /// Sets keys of nanoGPT, in the text.
    pub fn set_keys(&mut self, changes: &[(&str, Value)]) {
        self.text = edit::set(&self.text, changes);
    }
}

/// How many processes a command starts. Only a launcher of PyTorch's says so; a text without one need not be read.
fn processes(text: &str) -> Option<u64> {
    let has_launcher = text.contains("torchrun") || text.contains("torch.distributed");
    has_launcher.then(|| from_pasted_text(CONFIG_NAME, text).world_size).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_to_the_same_values() {
        let mut session = Session { text: "batch_size = 4 * 2  # mine\n".into(), ..Session::default() };
        session.options.gpu = "L4".into();
        let opened = Session::open(&session.fragment(), None).expect("a link");
        assert_eq!(opened.session.text, "batch_size = 8\n");
        assert_eq!(opened.session.options, session.options);
        assert_eq!(opened.session.fragment(), session.fragment());
    }

    #[test]
    fn a_reload_keeps_comments() {
        let session = Session { text: "batch_size = 4 * 2  # mine\n".into(), ..Session::default() };
        let fragment = session.fragment();
        let opened = Session::open(&fragment, Some((&fragment, &session.text))).expect("a link");
        assert_eq!(opened.session, session);
        let other = Session::open("1&batch_size=3", Some((&fragment, &session.text))).expect("a link");
        assert_eq!(other.session.text, "batch_size = 3\n");
    }

    #[test]
    fn a_links_gpu_wins_over_the_one_that_was_chosen_before() {
        for (fragment, names_gpu) in [("1&batch_size=8", false), ("1&gpu=L4", true), ("1&gpu=&vram=16GiB", true)] {
            let opened = Session::open(fragment, None).expect("a link");
            assert_eq!(opened.names_gpu, names_gpu, "{fragment}");
        }
        let mut session = Session::default();
        session.prefer_gpu(Some("RTX 3060"));
        assert_eq!(session.options.gpu, "RTX 3060");
        session.prefer_gpu(Some("no such card"));
        assert_eq!(session.options.gpu, "RTX 3060");
        session.prefer_gpu(Some("16GiB"));
        assert_eq!(session.options.vram_bytes, Some(16 << 30));
    }

    #[test]
    fn the_run_at_the_start_is_known_as_such() {
        assert!(Session::default().is_untouched());
        let opened = Session::open(&Session::default().fragment(), None).expect("a link");
        assert!(opened.session.is_untouched());
        assert!(!Session { text: "batch_size = 64\n".into(), ..Session::default() }.is_untouched());
    }

    #[test]
    fn an_anchor_is_no_link() {
        assert_eq!(Session::open("#phases", None), None);
        assert_eq!(Session::open("", None), None);
    }

    #[test]
    fn torchrun_sets_the_processes_and_its_going_takes_them_back() {
        let mut session = Session::default();
        session.set_text("torchrun --standalone --nproc_per_node=4 train.py --batch_size=8".into());
        assert_eq!(session.options.world_size, 4);
        session.options.world_size = 2;
        session.set_text("torchrun --standalone --nproc_per_node=4 train.py --batch_size=9".into());
        assert_eq!(session.options.world_size, 2);
        session.set_text("batch_size = 8".into());
        assert_eq!(session.options.world_size, 1);
    }
}
