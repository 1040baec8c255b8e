//! Comparison of runs with the shown one: the selection, and the differences in their settings.

use headroom_protocol::run::Run;

use super::{Rig, ShownRun, names::called};
use crate::{
    state::rig_charts::{loss_plot::ComparedCurve, zone::UtcOffset},
    text::{self, t},
};

/// The most compared runs besides the shown one, one per line style.
pub const COMPARED_MAX: usize = 3;
/// The most rows of differences.
const ROWS_MAX: usize = 40;
/// The cell of a key that a config does not set.
const NOT_SET: &str = "–";

/// The ids of the runs compared with the shown one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparedRuns(Vec<String>);

impl ComparedRuns {
    /// Adds a run, if there is room.
    pub fn add(&mut self, id: String) {
        if self.0.len() < COMPARED_MAX && !self.0.contains(&id) {
            self.0.push(id);
        }
    }

    /// Removes a run.
    pub fn remove(&mut self, id: &str) {
        self.0.retain(|other| other != id);
    }

    /// Returns whether another run fits.
    pub const fn has_room(&self) -> bool {
        self.0.len() < COMPARED_MAX
    }

    /// The compared runs without the shown one.
    pub fn beside<'a>(&'a self, shown: &'a str) -> impl Iterator<Item = &'a String> {
        self.0.iter().filter(move |id| *id != shown)
    }

    /// The curves to draw for the compared runs.
    pub fn others(&self, rig: &Rig, shown: &str, zone: UtcOffset) -> Vec<ComparedCurve> {
        let watched = |id: &String| rig.runs.iter().find(|watched| watched.run.id == *id);
        let drawn = || self.beside(shown).map(String::as_str).chain([shown]);
        let other = |ShownRun { run, losses, .. }: &ShownRun| ComparedCurve {
            id: run.id.clone(),
            name: called(rig, run, drawn(), zone),
            losses: losses.clone(),
        };
        self.beside(shown).filter_map(watched).map(other).collect()
    }
}

/// A table of the differences between runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// The runs' names, the shown one first.
    pub names: Vec<String>,
    /// The configs' keys, with each run's value.
    pub rows: Vec<(String, Vec<String>)>,
}

/// The differences between the runs' configs, and between the config, the data set and the device that they were
/// started with. `None` if these are known for fewer than two runs.
pub fn differences(rig: &Rig, ids: &[String], zone: UtcOffset) -> Option<Differences> {
    let run = |id: &String| rig.runs.iter().map(|watched| &watched.run).find(|run| run.id == *id);
    let of = |run| Some((called(rig, run, ids, zone), values(run)?));
    let (names, configs): (Vec<_>, Vec<_>) = ids.iter().filter_map(run).filter_map(of).unzip();
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in configs.iter().flatten() {
        if !keys.contains(key) {
            keys.push(key);
        }
    }
    let row = |key: &str| {
        let values: Vec<String> = configs.iter().map(|config| in_config(config, key).to_owned()).collect();
        values.iter().any(|value| *value != values[0]).then(|| (key.to_owned(), values))
    };
    let rows = keys.into_iter().filter_map(row).take(ROWS_MAX).collect();
    (configs.len() > 1).then_some(Differences { names, rows })
}

/// The value of a key in a config.
fn in_config<'a>(config: &'a [(&str, String)], key: &str) -> &'a str {
    config.iter().rfind(|(name, _)| *name == key).map_or(NOT_SET, |found| &found.1)
}

/// Keys with their values; the last value of a key applies. Lines have the form of a config file or of nanoGPT's
/// output. The values that the run was started with come first and override them.
fn values(run: &Run) -> Option<Vec<(&str, String)>> {
    let mut values: Vec<(&str, String)> = Vec::new();
    if let Some(order) = &run.order {
        values.push((t(text::RIG_CONFIG), order.config.clone()));
        let names = [("dataset", order.dataset.as_ref()), ("device", order.device.as_ref())];
        values.extend(names.into_iter().filter_map(|(key, name)| Some((key, format!("'{}'", name?)))));
    }
    let n_ordered = values.len();
    for (key, value) in run.config.iter().flat_map(|config| config.lines()).filter_map(value) {
        if values[..n_ordered].iter().all(|(ordered, _)| *ordered != key) {
            values.push((key, value.to_owned()));
        }
    }
    (run.config.is_some() || run.order.is_some()).then_some(values)
}

fn value(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim().trim_start_matches("Overriding: "), value.trim());
    // A comment after a value is not part of it; a quoted string may contain `#`.
    let is_text = value.starts_with(['"', '\'']);
    let value = if is_text { value } else { value.split('#').next().unwrap_or_default().trim_end() };
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_key.then_some((key, value))
}

#[cfg(test)]
mod tests {
    use headroom_protocol::run::RunRequest;

    use super::*;
    use crate::state::{rig::sample::run, rig_charts::losses::Losses};

    const UTC: UtcOffset = UtcOffset(|_| 0);

    fn rig(configs: &[(&str, Option<&str>)]) -> Rig {
        let mut rig = Rig::default();
        for (id, config) in configs {
            let run = Run { name: format!("run {id}"), config: config.map(str::to_owned), ..run(id) };
            rig.runs.push(ShownRun { run, losses: Losses::default(), is_whole: true, stopping_ms: None });
        }
        rig
    }

    #[test]
    fn only_what_differs_is_reported() {
        let rig = rig(&[
            (
                "a",
                Some(
                    "# a comment = 1
batch_size = 12  # five
learning_rate = 6e-4
out_dir = 'a#1'
",
                ),
            ),
            (
                "b",
                Some(
                    "Overriding: batch_size = 12
batch_size = 8
learning_rate=6e-4
if a == b: x = 1
",
                ),
            ),
            ("c", None),
        ]);
        let ids = ["a", "c", "b"].map(str::to_owned);
        let found = differences(&rig, &ids, UTC).expect("two have configs");
        assert_eq!(found.names, ["run a", "run b"]);
        let rows: Vec<_> = found.rows.iter().map(|(key, values)| (key.as_str(), values.join(" | "))).collect();
        assert_eq!(rows, [("batch_size", "12 | 8".to_owned()), ("out_dir", "'a#1' | –".to_owned())]);
        assert_eq!(differences(&rig, &ids[..2], UTC), None, "one has a config");
        assert_eq!(differences(&rig, &[ids[0].clone(), ids[0].clone()], UTC).map(|found| found.rows.len()), Some(0));
    }

    #[test]
    fn different_requests_with_equal_configs_differ() {
        let mut rig =
            rig(&[("a", Some("dataset = 'own'\nbatch_size = 8\n")), ("b", Some("batch_size = 8\n")), ("c", None)]);
        for (watched, (dataset, device)) in rig.runs.iter_mut().zip([("fox", "cpu"), ("builtin", "cpu")]) {
            let (dataset, device) = (Some(dataset.to_owned()), Some(device.to_owned()));
            watched.run.order = Some(RunRequest { config: "long.py".to_owned(), dataset, device, name: None });
        }
        rig.runs[2].run.order = Some(RunRequest { config: "tiny".to_owned(), ..RunRequest::default() });
        let rows = |ids: &[&str]| {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            let rows = differences(&rig, &ids, UTC).expect("they were ordered").rows;
            rows.into_iter().map(|(key, values)| format!("{key}: {}", values.join(" | "))).collect::<Vec<_>>()
        };
        assert_eq!(rows(&["a", "b"]), ["dataset: 'fox' | 'builtin'"]);
        let with_another = ["Config: long.py | tiny", "dataset: 'fox' | –", "device: 'cpu' | –", "batch_size: 8 | –"];
        assert_eq!(rows(&["a", "c"]), with_another);
    }

    #[test]
    fn runs_beside_are_few_known_and_not_the_one_that_is_shown() {
        let rig = rig(&[("a", None), ("b", None)]);
        let mut compared = ComparedRuns::default();
        for id in ["a", "b", "b", "gone", "one too many"] {
            compared.add(id.to_owned());
        }
        assert!(!compared.has_room());
        let others = compared.others(&rig, "a", UTC);
        assert_eq!(others.iter().map(|other| other.name.as_str()).collect::<Vec<_>>(), ["run b"]);
        compared.remove("gone");
        assert!(compared.has_room());
    }
}
