//! The HTML that embeds the calculator in another page.

use headroom_planner::{
    link::encode,
    nanogpt::{Settings, defaults},
    session::Options,
};

use super::{
    answer::PlannedSession,
    edit::{accepted, argument},
    format, read_settings,
    session::Session,
};
use crate::text::{self, say, t};

/// The element's name, which `headroom-calculator.js` defines.
pub const ELEMENT: &str = "headroom-calculator";
/// The script's file name.
pub const SCRIPT: &str = "headroom-calculator.js";

/// Options with an attribute of their own, by their names in a link.
const ATTRIBUTES: [&str; 3] = ["gpu", "vram", "others"];

/// The HTML, in parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Snippet {
    /// The element's attributes; `None` for an omitted one.
    pub attributes: [(&'static str, Option<String>); 6],
    /// The directory of the page's files, with a trailing slash.
    folder: String,
    /// The target and the text of the link inside.
    fragment: String,
    link: String,
}

impl Snippet {
    /// The HTML for a run; `folder` is the directory of the page's files, with a trailing slash. The text of the run is
    /// not parsed again, because it may have megabytes.
    pub fn of(answer: &PlannedSession, options: &Options, language: &str, theme: &str, folder: &str) -> Self {
        let fragment = fragment(answer, options);
        let gib = |bytes: u64| (bytes > 0).then(|| format::gib_field(bytes));
        let named = Some(options.gpu.clone()).filter(|gpu| !gpu.is_empty());
        let attributes = [
            ("config", Some(config(answer, options, &fragment)).filter(|config| !config.is_empty())),
            ("gpu", named),
            ("vram", options.vram_bytes.and_then(gib)),
            ("others", gib(options.other_processes_bytes)),
            ("lang", Some(language.to_owned())),
            ("theme", Some(theme.to_owned())),
        ];
        Self { attributes, folder: folder.to_owned(), fragment, link: link(&options.gpu) }
    }

    /// The HTML to paste.
    pub fn html(&self) -> String {
        let attribute = |(name, value): &(&str, Option<String>)| {
            value.as_ref().map(|value| format!(" {name}=\"{}\"", escaped(value))).unwrap_or_default()
        };
        let attributes: String = self.attributes.iter().map(attribute).collect();
        let (folder, fragment, link) = (escaped(&self.folder), escaped(&self.fragment), escaped(&self.link));
        format!(
            "<script async src=\"{folder}{SCRIPT}\"></script>\n<{ELEMENT}{attributes}>\n  \
             <a href=\"{folder}#{fragment}\">{link}</a>\n</{ELEMENT}>\n"
        )
    }
}

/// The text of the link that replaces the calculator without JavaScript.
fn link(gpu: &str) -> String {
    if gpu.is_empty() { t(text::EMBED_LINK).to_owned() } else { say(&text::embed_link_on(gpu)) }
}

/// Keys that change a figure of few runs: they decide whether the run evaluates again.
const LENGTHS: [&str; 2] = ["max_iters", "eval_interval"];

/// The link to the run without keys at nanoGPT's defaults, and without [`LENGTHS`] if they change no figure.
fn fragment(answer: &PlannedSession, options: &Options) -> String {
    let settings = &answer.resolved.settings;
    let fragment = encode(settings, options);
    let name = |part: &str| part.split('=').next().unwrap_or_default().to_owned();
    let is_readable = |key: &str| settings.unreadable().all(|unreadable| unreadable != key);
    let is_default = |part: &&str| {
        let key = defaults::find(&name(part)).filter(|key| is_readable(key.name));
        key.is_some_and(|key| key.default.value().is_some_and(|value| settings.value(key.name) == Some(value)))
    };
    let parts: Vec<&str> = fragment.split('&').filter(|part| !is_default(part)).collect();
    let short: Vec<&str> = parts.iter().copied().filter(|part| !LENGTHS.contains(&&*name(part))).collect();
    if short.len() == parts.len() {
        return parts.join("&");
    }
    let figures = |answer: &PlannedSession| answer.plan().map(|plan| (plan.peak.clone(), plan.phases.clone()));
    let shortened = Session::open(&short.join("&"), None).map(|opened| PlannedSession::of(&opened.session));
    let is_same = shortened.is_some_and(|shortened| figures(&shortened) == figures(answer));
    if is_same { short } else { parts }.join("&")
}

/// The run in one line: as readable overrides if they suffice, else as a link.
fn config(answer: &PlannedSession, options: &Options, fragment: &str) -> String {
    let settings = &answer.resolved.settings;
    let plain = Options {
        gpu: options.gpu.clone(),
        vram_bytes: options.vram_bytes,
        other_processes_bytes: options.other_processes_bytes,
        ..Options::default()
    };
    let parts = || fragment.split('&').filter(|part| !ATTRIBUTES.contains(&part.split('=').next().unwrap_or_default()));
    // The part of a config that a link carries. Keys that change no figure are omitted.
    let carried = parts().collect::<Vec<_>>().join("&");
    // A link can carry a value that cannot be read.
    let is_plain = plain == *options && settings.is_complete();
    let overrides = is_plain.then(|| overrides(&carried, settings)).flatten();
    overrides.unwrap_or(carried)
}

fn overrides(carried: &str, settings: &Settings) -> Option<String> {
    let names = || carried.split('&').skip(1).filter_map(|part| part.split('=').next());
    // A fork's key is not an argument of nanoGPT.
    let base = Settings::default();
    let all = names().map(|name| argument(name, &settings.value(name)?, &base));
    let line = all.collect::<Option<Vec<_>>>()?.join(" ");
    // Overrides that are refused or parse to other values are not used.
    let again = read_settings(&line);
    let is_same = |name| again.value(name) == settings.value(name).and_then(|value| accepted(name, &value, &base));
    (again.problems.first_stop().is_none() && names().all(is_same)).then_some(line)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_planner::{link, nanogpt::Value};

    fn session(text: &str, change: impl FnOnce(&mut Options)) -> Session {
        let mut session = Session { text: text.into(), ..Session::default() };
        change(&mut session.options);
        session
    }

    fn snippet(session: &Session) -> Snippet {
        Snippet::of(&PlannedSession::of(session), &session.options, "de", "auto", "https://a.example/b/")
    }

    fn attribute(session: &Session, name: &str) -> Option<String> {
        let snippet = snippet(session);
        snippet.attributes.iter().find(|(found, _)| *found == name).and_then(|(_, value)| value.clone())
    }

    #[test]
    fn the_lines_are_a_script_an_element_and_a_link() {
        let session = session("batch_size = 64  # mine\nout_dir = '/home/me'\n", |_| {});
        assert_eq!(
            snippet(&session).html(),
            "<script async src=\"https://a.example/b/headroom-calculator.js\"></script>\n\
             <headroom-calculator config=\"--batch_size=64\" gpu=\"RTX 4070\" lang=\"de\" theme=\"auto\">\n  \
             <a href=\"https://a.example/b/#1&amp;batch_size=64&amp;gpu=RTX%204070\">The GPU memory of this run on \
             RTX 4070, computed by Headroom</a>\n</headroom-calculator>\n"
        );
    }

    #[test]
    fn a_run_reads_back_from_its_attribute() {
        for (text, change, expected) in [
            ("batch_size = 8\ncompile = False\n", None, "--batch_size=8 --compile=False"),
            ("python train.py --dtype=float16", None, "--dtype=float16"),
            ("gradient_accumulation_steps = 5 * 8\nn_layer = 12\n", None, ""),
            ("gradient_accumulation_steps = 4 * 8\nmax_iters = 5000\n", None, "--gradient_accumulation_steps=32"),
            ("eval_interval = 100\nmax_iters = 600000\n", None, ""),
            // Without the evaluation after these iterations the run has other phases.
            ("max_iters = 50\n", None, "--max_iters=50"),
            ("vocab_size = 65", None, "--vocab_size=65"),
            ("", None, ""),
            ("batch_size = 8", Some(()), "1&batch_size=8&checkpointing=1"),
        ] {
            let given = session(text, |options| options.activation_checkpointing = change.is_some());
            let config = attribute(&given, "config").unwrap_or_default();
            assert_eq!(config, expected, "{text}");
            let mut fragment = format!("1&gpu=RTX%204070&config={}", config.replace('%', "%25").replace('&', "%26"));
            fragment = fragment.replace(' ', "%20");
            let opened = Session::open(&fragment, None).expect("a link").session;
            let [opened, given] = [opened, given].map(|session| {
                let answer = PlannedSession::of(&session);
                let plan = answer.plan().expect("a plan");
                (plan.peak.clone(), plan.phases.clone(), plan.headroom_bytes)
            });
            assert_eq!(opened, given, "{text}");
        }
    }

    #[test]
    fn unreadable_values_stay_in_the_snippet() {
        for text in ["compile = maybe", "batch_size = 99999999999999999999", "batch_size = 20\nn_layer = x"] {
            let given = session(text, |_| {});
            assert!(PlannedSession::of(&given).plan().is_none(), "{text}");
            let config = attribute(&given, "config").unwrap_or_default();
            let encoded = config.replace('%', "%25").replace('&', "%26").replace(' ', "%20");
            let opened = Session::open(&format!("1&gpu=RTX%204070&config={encoded}"), None).expect("a link").session;
            assert!(PlannedSession::of(&opened).plan().is_none(), "{text}: {config}");
        }
    }

    #[test]
    fn sizes_and_quotes_are_written_so_that_they_read_back() {
        let mut given = session("init_from = 'it\\'s \"so\"'", |options| options.other_processes_bytes = 3 << 29);
        assert_eq!(attribute(&given, "others").as_deref(), Some("1.5"));
        assert_eq!(attribute(&given, "vram"), None);
        given.options.gpu.clear();
        given.options.vram_bytes = Some(16 << 30);
        assert_eq!((attribute(&given, "vram").as_deref(), attribute(&given, "gpu")), (Some("16"), None));
        let html = snippet(&given).html();
        assert_eq!(html.matches('"').count() % 2, 0, "{html}");
        let config = attribute(&given, "config").expect("a config");
        let link = link::decode(&format!("1&config={}", config.replace('%', "%25").replace('&', "%26")));
        let value = read_settings(&link.config).value("init_from");
        assert_eq!(value, Some(Value::Str("it's \"so\"".to_owned())), "{config}");
    }
}
