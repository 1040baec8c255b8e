//! The demo's settings that survive a reload of the page in another language. They are lines of text: a JSON parser
//! would be larger. Files are lost, because browsers do not keep them.

use headroom_protocol::demo::DemoBackend;

use super::Settings;

/// The user's settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredSettings {
    /// The generation settings.
    pub settings: Settings,
    /// The chosen backend.
    pub way: Option<DemoBackend>,
    /// The GPU's memory in bytes, if the user entered it.
    pub gpu_bytes: Option<u64>,
    /// The file name of the model that has to be opened again; empty for the bundled model.
    pub file: String,
    /// The prompt.
    pub prompt: String,
}

impl StoredSettings {
    /// Serialises the settings: one line each, the prompt last.
    pub fn text(&self) -> String {
        let Settings { temperature, top_k, seed, n_tokens, slowly } = &self.settings;
        let way = DemoBackend::ALL.iter().position(|way| Some(*way) == self.way);
        let [way, bytes] =
            [way.map(|way| way as u64), self.gpu_bytes].map(|n| n.map_or_else(String::new, |n| n.to_string()));
        // A line break in the name would shift the other lines.
        let file = self.file.replace('\n', " ");
        let slowly = u8::from(*slowly);
        format!("{temperature}\n{top_k}\n{seed}\n{n_tokens}\n{slowly}\n{way}\n{bytes}\n{file}\n{}", self.prompt)
    }

    /// Parses such a text. Invalid settings keep their defaults; `None` if lines are missing.
    pub fn of_text(text: &str) -> Option<Self> {
        let mut lines = text.splitn(9, '\n');
        let mut settings = Settings::default();
        let _ = settings.take_temperature(lines.next()?);
        let _ = settings.take_top_k(lines.next()?);
        let _ = settings.take_seed(lines.next()?);
        let _ = settings.take_n_tokens(lines.next()?);
        settings.slowly = lines.next()? == "1";
        let way = lines.next()?.parse().ok().and_then(|way: usize| DemoBackend::ALL.get(way).copied());
        let gpu_bytes = lines.next()?.parse().ok();
        let (file, prompt) = (lines.next()?.to_owned(), lines.next()?.to_owned());
        Some(Self { settings, way, gpu_bytes, file, prompt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_settings_read_back() {
        let settings = Settings { temperature: 0.35, top_k: 0, seed: u64::MAX, n_tokens: 7, slowly: true };
        for kept in [
            StoredSettings::default(),
            StoredSettings {
                settings,
                way: Some(DemoBackend::CpuInt16),
                gpu_bytes: Some(12 << 30),
                file: "model.safetensors".to_owned(),
                prompt: "Once\nupon\n\na time\n".to_owned(),
            },
        ] {
            assert_eq!(StoredSettings::of_text(&kept.text()), Some(kept));
        }
        let odd = StoredSettings { file: "a\nb".to_owned(), prompt: "c".to_owned(), ..StoredSettings::default() };
        let back = StoredSettings::of_text(&odd.text()).expect("lines");
        assert_eq!((back.file.as_str(), back.prompt.as_str()), ("a b", "c"));
    }

    #[test]
    fn invalid_stored_setting_keeps_default() {
        let kept = StoredSettings::of_text("x\n-1\n\n99999\n2\n9\nmany\n\nOnce").expect("lines");
        assert_eq!(kept, StoredSettings { prompt: "Once".to_owned(), ..StoredSettings::default() });
        assert_eq!(StoredSettings::of_text("Once upon a time"), None);
    }
}
