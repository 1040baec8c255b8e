//! The user's input: the single source of truth behind the text, the form and the link.

use headroom_planner::{
    link::{self, PIN, split_compared},
    nanogpt::{Format, PastedKind, Value, names_launcher, recognize, without_own_comments},
    session::Options,
};

use super::{edit, gpu, parse, presets, read_settings};

/// A run on a GPU, as entered.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// A config, a command or a log.
    pub text: String,
    /// The settings outside nanoGPT's config.
    pub options: Options,
    /// The run that the comments of fixes in the text describe, as a link's fragment. Empty without one.
    pub comments_for: String,
    /// The config file that the text came from.
    pub file: Option<ConfigFile>,
}

/// A config file that the user opened.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigFile {
    /// Its name, without a directory.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Default for Session {
    /// nanoGPT's GPT-2 run on the default GPU.
    fn default() -> Self {
        Self::new(presets::RUNS[0].text.to_owned(), Options::default())
    }
}

/// A session from a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkedSession {
    /// The session.
    pub session: Session,
    /// Parts of the link that this version does not know.
    pub unknown: Vec<String>,
    /// The link's version, if it is later than this program's.
    pub later_version: Option<u32>,
    /// Whether the link names a GPU or its memory.
    pub names_gpu: bool,
    /// The pinned moment, as a share of the run.
    pub pinned: Option<f64>,
    /// The link of the run that this one is compared with.
    pub compared: Option<String>,
}

/// The resolution of the pinned moment in a link, in parts of the run.
const PIN_PARTS: u32 = 10_000;

/// Appends the pinned moment, if any, to a fragment.
pub fn with_pin(fragment: String, pinned: Option<f64>) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share: from 0 to 1")]
    let part = |share: f64| (share.clamp(0.0, 1.0) * f64::from(PIN_PARTS)).round() as u32;
    pinned.map(|share| format!("{fragment}&{PIN}={}", part(share))).unwrap_or(fragment)
}

/// Splits the pinned moment off the end of a fragment.
pub fn split_pin(fragment: &str) -> (&str, Option<f64>) {
    let split = fragment.rsplit_once('&').and_then(|(rest, last)| Some((rest, last.split_once('=')?)));
    match split {
        Some((rest, (PIN, part))) => {
            let share = |part: u32| f64::from(part.min(PIN_PARTS)) / f64::from(PIN_PARTS);
            (rest, part.parse().ok().map(share))
        }
        _ => (fragment, None),
    }
}

/// The run's part of a fragment: without the pinned moment and the compared run.
pub fn run_of(fragment: &str) -> &str {
    split_compared(split_pin(fragment).0).0
}

impl Session {
    /// A session without applied fixes.
    pub fn new(text: String, options: Options) -> Self {
        Self { text, options, comments_for: String::new(), file: None }
    }

    /// Opens a URL's fragment; `None` if it is not a Headroom link.
    ///
    /// `kept` is a fragment with the text that it was made from. A link carries values but no comments, so reloading
    /// the same page restores the text.
    pub fn open(fragment: &str, kept: Option<(&str, &str)>) -> Option<LinkedSession> {
        let fragment = fragment.strip_prefix('#').unwrap_or(fragment);
        if !fragment.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let (fragment, pinned) = split_pin(fragment);
        let (fragment, compared) = split_compared(fragment);
        let link = link::decode(fragment);
        let mut session = Self::new(link.config, link.options);
        if let Some((of, text)) = kept.filter(|(of, _)| *of == fragment) {
            text.clone_into(&mut session.text);
            of.clone_into(&mut session.comments_for);
        }
        session.settle();
        let names_gpu = fragment.split('&').any(|part| part.starts_with("gpu=") || part.starts_with("vram="));
        let (unknown, later_version) = (link.unknown, link.later_version);
        Some(LinkedSession { session, unknown, later_version, names_gpu, pinned, compared })
    }

    /// Selects the GPU chosen earlier on this device, if it is still known.
    pub fn prefer_gpu(&mut self, kept: Option<&str>) {
        gpu::prefer(&mut self.options, kept);
    }

    /// Returns whether the text is the calculator's initial run.
    pub fn is_untouched(&self) -> bool {
        let run = |text: &str| link::encode(&read_settings(text), &Options::default());
        run(&self.text) == run(presets::RUNS[0].text)
    }

    /// The fragment, without `#`, that opens this session.
    pub fn fragment(&self) -> String {
        link::encode(&read_settings(&self.text), &self.options)
    }

    /// Sets a new text. JSON that describes a run becomes its config, with its GPU if it names one. A command's
    /// launcher sets the number of processes; a text without one resets it.
    pub fn set_text(&mut self, text: String) {
        let text = match recognize(&text) {
            Some(Format::Settings(config)) => config,
            Some(Format::Plan { config, gpu, vram_bytes }) => {
                if !gpu.is_empty() || vram_bytes.is_some() {
                    (self.options.gpu, self.options.vram_bytes) = (gpu, vram_bytes);
                }
                config
            }
            Some(Format::Link(_) | Format::Unsupported(..)) | None => text,
        };
        let before = processes(&self.text);
        let now = processes(&text);
        if before != now {
            self.options.world_size = now.unwrap_or(1);
        }
        self.text = text;
        self.file = None;
    }

    /// Sets the text of a file. A config keeps the file's name.
    pub fn set_file(&mut self, file: ConfigFile) {
        self.set_text(file.text.clone());
        let is_config = file.name.ends_with(".py") && parse(&file.text).kind == PastedKind::Config;
        self.file = Some(file).filter(|_| is_config);
    }

    /// Removes comments that fixes wrote for another run or GPU. Must be called after every change.
    pub fn settle(&mut self) {
        self.settle_after(None);
    }

    /// Sets a text that is being typed. A comment that is not complete stays.
    pub fn type_text(&mut self, text: String) {
        let (before, file) = (self.text.clone(), self.file.take());
        self.set_text(text);
        self.file = file;
        self.settle_after(Some(&before));
    }

    fn settle_after(&mut self, before: Option<&str>) {
        if let Some(without) = without_own_comments(&self.text, before)
            && self.comments_for != self.fragment()
        {
            self.text = without;
        }
    }

    /// Sets nanoGPT keys in the text.
    pub fn set_keys(&mut self, changes: &[(&str, Value)]) {
        self.text = edit::set(&self.text, changes);
    }
}

/// The number of processes that a command starts. Only launchers set it, so other texts are not parsed.
fn processes(text: &str) -> Option<u64> {
    names_launcher(text).then(|| parse(text).world_size).flatten()
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
    fn a_link_carries_the_pinned_moment() {
        let session = Session { text: "batch_size = 8  # mine\n".into(), ..Session::default() };
        let fragment = session.fragment();
        assert_eq!(with_pin(fragment.clone(), None), fragment);
        let link = with_pin(fragment.clone(), Some(0.431_24));
        let opened = Session::open(&link, Some((&fragment, &session.text))).expect("a link");
        assert_eq!((&opened.session.text, &opened.session.options), (&session.text, &session.options));
        assert_eq!((opened.unknown, opened.pinned), (Vec::new(), Some(0.4312)));
        let opened = Session::open("1&batch_size=3&pin=99999", None).expect("a link");
        assert_eq!(opened.pinned, Some(1.0), "beyond the end is the end");
        let opened = Session::open("1&batch_size=3&pin=x", None).expect("a link");
        assert_eq!((opened.pinned, opened.unknown.len()), (None, 0));
        assert_eq!(opened.session.text, "batch_size = 3\n", "a pin is not a config key");
    }

    #[test]
    fn a_link_with_a_compared_run_opens_the_run_alone() {
        let session = Session { text: "batch_size = 8  # mine\n".into(), ..Session::default() };
        let run = session.fragment();
        let link = with_pin(link::with_compared(run.clone(), "1&n_layer=3"), Some(0.5));
        assert_eq!(run_of(&link), run);
        let opened = Session::open(&link, Some((&run, &session.text))).expect("a link");
        assert_eq!((opened.compared.as_deref(), opened.pinned), (Some("1&n_layer=3"), Some(0.5)));
        assert_eq!((&opened.session.text, opened.unknown.len()), (&session.text, 0));
    }

    #[test]
    fn a_reload_keeps_comments() {
        let session = Session { text: "batch_size = 4 * 2  # mine\n".into(), ..Session::default() };
        let fragment = session.fragment();
        let opened = Session::open(&fragment, Some((&fragment, &session.text))).expect("a link");
        assert_eq!((&opened.session.text, &opened.session.options), (&session.text, &session.options));
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
    fn json_of_a_plan_opens_its_run() {
        let mut session = Session::default();
        session.set_text(
            r#"{"schema": 1, "config": {"batch_size": 64, "compile": false}, "device": {"name": "L4", "total_bytes": 5}}"#
                .into(),
        );
        assert_eq!(session.text, "batch_size = 64\ncompile = False\n");
        assert_eq!((session.options.gpu.as_str(), session.options.vram_bytes), ("L4", Some(5)));
        session.set_text(r#"{"model_type": "gpt2", "n_layer": 24}"#.into());
        assert!(session.text.starts_with("n_layer = 24\n"), "{}", session.text);
    }

    #[test]
    fn comments_of_a_fix_go_with_the_run_that_they_are_about() {
        let fixed = || {
            let mut session = Session { text: "batch_size = 8  # headroom: fits L4\n".into(), ..Session::default() };
            session.comments_for = session.fragment();
            session.settle();
            assert!(session.text.contains("# headroom"), "{}", session.text);
            session
        };
        let changes: [fn(&mut Session); 5] = [
            |session| session.set_keys(&[("n_layer", Value::Int(24))]),
            |session| gpu::set(&mut session.options, "RTX 3060"),
            |session| session.options.other_processes_bytes = 1 << 30,
            |session| session.set_text(session.text.replace("= 8", "= 80")),
            |session| session.set_text(format!("{}n_layer = 24\n", session.text)),
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut session = fixed();
            change(&mut session);
            session.settle();
            assert!(!session.text.contains("# headroom"), "{index}: {}", session.text);
        }
        // A change without effect on any figure keeps them.
        let mut session = fixed();
        session.set_text(format!("{}out_dir = 'mine'\n", session.text));
        session.settle();
        assert!(session.text.contains("# headroom: fits L4"), "{}", session.text);
        // A pasted comment belongs to an unknown run.
        let mut session = Session::default();
        session.set_text("batch_size = 8  # headroom: fits L4\n".into());
        session.settle();
        assert_eq!(session.text, "batch_size = 8\n");
    }

    #[test]
    fn a_comment_that_is_being_typed_stays() {
        let typed = "batch_size = 10  # headroom: fits GeForce RTX 4070";
        let mut session = Session::default();
        for end in 1..=typed.len() {
            session.type_text(typed[..end].to_owned());
            assert_eq!(session.text, typed[..end]);
        }
        // It goes as a whole once another line changes.
        session.type_text(format!("{typed}\nn"));
        assert_eq!(session.text, "batch_size = 10\nn");
        // The comment of a fix goes with its value.
        let mut session = Session { text: "batch_size = 8  # headroom: fits L4\n".into(), ..Session::default() };
        session.comments_for = session.fragment();
        session.type_text("batch_size = 80  # headroom: fits L4\n".into());
        assert_eq!(session.text, "batch_size = 80\n");
    }

    #[test]
    fn a_reload_keeps_the_comments_of_a_fix() {
        let mut session = Session { text: "batch_size = 8  # headroom: fits L4\n".into(), ..Session::default() };
        session.comments_for = session.fragment();
        let fragment = session.fragment();
        let opened = Session::open(&fragment, Some((&fragment, &session.text))).expect("a link");
        assert_eq!(opened.session, session);
        let other = Session::open(&fragment, Some(("1&batch_size=3", &session.text))).expect("a link");
        assert_eq!(other.session.text, "batch_size = 8\n");
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
