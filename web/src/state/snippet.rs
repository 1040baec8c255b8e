//! The lines that put the calculator into somebody's page.

use headroom_shared::{
    link,
    nanogpt::{Settings, from_pasted_text},
    session::Options,
};

use super::{
    edit::shell_value,
    format,
    session::{CONFIG_NAME, Session},
};
use crate::text::{self, say, t};

/// The element's name; `headroom-calculator.js` defines it.
pub const ELEMENT: &str = "headroom-calculator";
/// The script's file.
pub const SCRIPT: &str = "headroom-calculator.js";

/// Options that have an attribute of their own, as a link calls them.
const ATTRIBUTES: [&str; 3] = ["gpu", "vram", "others"];

/// The lines, in parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Snippet {
    /// The element's attributes; `None` where one is left out.
    pub attributes: [(&'static str, Option<String>); 6],
    /// The folder of the page's files, with a slash at its end.
    folder: String,
    /// What the link inside leads to, and says.
    fragment: String,
    link: String,
}

impl Snippet {
    /// The lines for a run; `folder` is where the page's files lie, with a slash at its end.
    pub fn of(session: &Session, language: &str, theme: &str, folder: &str) -> Self {
        let options = &session.options;
        let gib = |bytes: u64| (bytes > 0).then(|| format::gib_field(bytes));
        let named = Some(options.gpu.clone()).filter(|gpu| !gpu.is_empty());
        let attributes = [
            ("config", Some(config(session)).filter(|config| !config.is_empty())),
            ("gpu", named),
            ("vram", options.vram_bytes.and_then(gib)),
            ("others", gib(options.other_processes_bytes)),
            ("lang", Some(language.to_owned())),
            ("theme", Some(theme.to_owned())),
        ];
        let fragment = session.fragment();
        Self { attributes, folder: folder.to_owned(), fragment, link: link(&options.gpu) }
    }

    /// The lines as they are pasted.
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

/// What the link says that stands in for the calculator where no script runs.
fn link(card: &str) -> String {
    if card.is_empty() { t(text::EMBED_LINK).to_owned() } else { say(&text::embed_link_on(card)) }
}

/// The run in one line: as overrides, which people read, where they say it all; else as a link does.
fn config(session: &Session) -> String {
    let settings = from_pasted_text(CONFIG_NAME, &session.text).read();
    let plain = Options {
        gpu: session.options.gpu.clone(),
        vram_bytes: session.options.vram_bytes,
        other_processes_bytes: session.options.other_processes_bytes,
        ..Options::default()
    };
    let fragment = session.fragment();
    let parts = || fragment.split('&').filter(|part| !ATTRIBUTES.contains(&part.split('=').next().unwrap_or_default()));
    // What a link carries of a config, and no more: it stays at home what changes no figure.
    let carried = parts().collect::<Vec<_>>().join("&");
    let overrides = (plain == session.options).then(|| overrides(&carried, &settings)).flatten();
    overrides.unwrap_or(carried)
}

fn overrides(carried: &str, settings: &Settings) -> Option<String> {
    let names = carried.split('&').skip(1).filter_map(|part| part.split('=').next());
    let all = names.map(|name| Some(format!("--{name}={}", shell_value(&settings.value(name)?)?)));
    let line = all.collect::<Option<Vec<_>>>()?.join(" ");
    // What reads back as something else is no way to say it.
    let again = from_pasted_text(CONFIG_NAME, &line).read();
    let link = |settings: &Settings| link::encode(settings, &Options::default());
    (link(&again) == link(settings)).then_some(line)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_shared::nanogpt::Value;

    fn session(text: &str, change: impl FnOnce(&mut Options)) -> Session {
        let mut session = Session { text: text.into(), ..Session::default() };
        change(&mut session.options);
        session
    }

    fn attribute(session: &Session, name: &str) -> Option<String> {
        let snippet = Snippet::of(session, "de", "auto", "https://a.example/b/");
        snippet.attributes.iter().find(|(found, _)| *found == name).and_then(|(_, value)| value.clone())
    }

    #[test]
    fn the_lines_are_a_script_an_element_and_a_link() {
        let session = session("batch_size = 64  # mine\nout_dir = '/home/me'\n", |_| {});
        assert_eq!(
            Snippet::of(&session, "de", "auto", "https://a.example/b/").html(),
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
            ("gradient_accumulation_steps = 5 * 8", None, "--gradient_accumulation_steps=40"),
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
            assert_eq!(opened.fragment(), given.fragment(), "{text}");
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
        let html = Snippet::of(&given, "en", "dark", "https://a.example/").html();
        assert_eq!(html.matches('"').count() % 2, 0, "{html}");
        let config = attribute(&given, "config").expect("a config");
        let link = link::decode(&format!("1&config={}", config.replace('%', "%25").replace('&', "%26")));
        let value = from_pasted_text(CONFIG_NAME, &link.config).read().value("init_from");
        assert_eq!(value, Some(Value::Str("it's \"so\"".to_owned())), "{config}");
    }
}
