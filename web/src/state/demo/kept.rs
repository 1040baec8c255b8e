//! What of the demo is kept while its page is loaded anew in another language, as lines of text: a reader of JSON would
//! be larger. Files are not: browsers keep none.

use headroom_shared::demo::Way;

use super::Settings;

/// What a person set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// How a text is to be written.
    pub settings: Settings,
    /// The way that was chosen.
    pub way: Option<Way>,
    /// The GPU's memory, where it was said.
    pub gpu_bytes: Option<u64>,
    /// The name of the model that has to be opened again; empty where it is the one that ships.
    pub file: String,
    /// How the text begins.
    pub prompt: String,
}

impl Kept {
    /// As text: a line each, the prompt's at last.
    pub fn text(&self) -> String {
        let Settings { temperature, top_k, seed, n_tokens, slowly } = &self.settings;
        let way = Way::ALL.iter().position(|way| Some(*way) == self.way);
        let [way, bytes] =
            [way.map(|way| way as u64), self.gpu_bytes].map(|n| n.map_or_else(String::new, |n| n.to_string()));
        // A name of several lines would be a stranger to the others.
        let file = self.file.replace('\n', " ");
        let slowly = u8::from(*slowly);
        format!("{temperature}\n{top_k}\n{seed}\n{n_tokens}\n{slowly}\n{way}\n{bytes}\n{file}\n{}", self.prompt)
    }

    /// Out of such a text. What is no setting stays as it is at first; none where lines are missing.
    pub fn of_text(text: &str) -> Option<Self> {
        let mut lines = text.splitn(9, '\n');
        let mut settings = Settings::default();
        let _ = settings.take_temperature(lines.next()?);
        let _ = settings.take_top_k(lines.next()?);
        let _ = settings.take_seed(lines.next()?);
        let _ = settings.take_n_tokens(lines.next()?);
        settings.slowly = lines.next()? == "1";
        let way = lines.next()?.parse().ok().and_then(|way: usize| Way::ALL.get(way).copied());
        let gpu_bytes = lines.next()?.parse().ok();
        let (file, prompt) = (lines.next()?.to_owned(), lines.next()?.to_owned());
        Some(Self { settings, way, gpu_bytes, file, prompt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_back() {
        let settings = Settings { temperature: 0.35, top_k: 0, seed: u64::MAX, n_tokens: 7, slowly: true };
        for kept in [
            Kept::default(),
            Kept {
                settings,
                way: Some(Way::CpuInt16),
                gpu_bytes: Some(12 << 30),
                file: "model.safetensors".to_owned(),
                prompt: "Once\nupon\n\na time\n".to_owned(),
            },
        ] {
            assert_eq!(Kept::of_text(&kept.text()), Some(kept));
        }
        let odd = Kept { file: "a\nb".to_owned(), prompt: "c".to_owned(), ..Kept::default() };
        let back = Kept::of_text(&odd.text()).expect("lines");
        assert_eq!((back.file.as_str(), back.prompt.as_str()), ("a b", "c"));
    }

    #[test]
    fn what_is_no_setting_stays_as_it_is_at_first() {
        let kept = Kept::of_text("x\n-1\n\n99999\n2\n9\nmany\n\nOnce").expect("lines");
        assert_eq!(kept, Kept { prompt: "Once".to_owned(), ..Kept::default() });
        assert_eq!(Kept::of_text("Once upon a time"), None);
    }
}
