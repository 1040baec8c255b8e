//! Runs beside the one that is shown: which, and where what they were started with differs.

use headroom_shared::protocol::run::Run;

use super::{Rig, Watched, names::called};
use crate::{
    state::rig_charts::{loss_plot::Other, zone::Zone},
    text::{self, t},
};

/// Runs that are compared at most, besides the one that is shown: there are as many styles of line.
pub const COMPARED_MAX: usize = 3;
/// Rows of differences at most: more nobody compares.
const ROWS_MAX: usize = 40;
/// What stands where a config has no such key.
const NOT_SET: &str = "–";

/// Numbers of runs that are compared with the one that is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared(Vec<String>);

impl Compared {
    /// Takes another, if there is room.
    pub fn add(&mut self, id: String) {
        if self.0.len() < COMPARED_MAX && !self.0.contains(&id) {
            self.0.push(id);
        }
    }

    /// Leaves one out.
    pub fn remove(&mut self, id: &str) {
        self.0.retain(|other| other != id);
    }

    /// Whether another has room.
    pub const fn has_room(&self) -> bool {
        self.0.len() < COMPARED_MAX
    }

    /// Those beside the one that is shown.
    pub fn beside<'a>(&'a self, shown: &'a str) -> impl Iterator<Item = &'a String> {
        self.0.iter().filter(move |id| *id != shown)
    }

    /// What is drawn of them.
    pub fn others(&self, rig: &Rig, shown: &str, zone: Zone) -> Vec<Other> {
        let watched = |id: &String| rig.runs.iter().find(|watched| watched.run.id == *id);
        let drawn = || self.beside(shown).map(String::as_str).chain([shown]);
        let other = |Watched { run, losses, .. }: &Watched| Other {
            id: run.id.clone(),
            name: called(rig, run, drawn(), zone),
            losses: losses.clone(),
        };
        self.beside(shown).filter_map(watched).map(other).collect()
    }
}

/// A table of where runs differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Names of the runs, the one that is shown first.
    pub names: Vec<String>,
    /// Keys of their configs, with what each run has.
    pub rows: Vec<(String, Vec<String>)>,
}

/// Where runs differ in their configs, and in the config, the data set and the device that the agent was told to start
/// them with; nothing where that is known of fewer than two.
pub fn differences(rig: &Rig, ids: &[String], zone: Zone) -> Option<Differences> {
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

/// What a config has under a key.
fn in_config<'a>(config: &'a [(&str, String)], key: &str) -> &'a str {
    config.iter().rfind(|(name, _)| *name == key).map_or(NOT_SET, |found| &found.1)
}

/// Keys with their values, of which a later one counts: lines as a config file has them, or as nanoGPT prints them. What
/// the run was ordered with counts before them, and is written as they are.
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
    // What stands behind a value is no part of it; a text may have the sign in it.
    let is_text = value.starts_with(['"', '\'']);
    let value = if is_text { value } else { value.split('#').next().unwrap_or_default().trim_end() };
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_key.then_some((key, value))
}

#[cfg(test)]
mod tests {
    use headroom_shared::protocol::run::Order;

    use super::*;
    use crate::state::{rig::sample::run, rig_charts::losses::Losses};

    const UTC: Zone = Zone(|_| 0);

    fn rig(configs: &[(&str, Option<&str>)]) -> Rig {
        let mut rig = Rig::default();
        for (id, config) in configs {
            let run = Run { name: format!("run {id}"), config: config.map(str::to_owned), ..run(id) };
            rig.runs.push(Watched { run, losses: Losses::default(), is_whole: true, stopping_ms: None });
        }
        rig
    }

    #[test]
    fn only_what_differs_is_told() {
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
    fn what_runs_were_ordered_with_differs_where_their_configs_do_not() {
        let mut rig =
            rig(&[("a", Some("dataset = 'own'\nbatch_size = 8\n")), ("b", Some("batch_size = 8\n")), ("c", None)]);
        for (watched, (dataset, device)) in rig.runs.iter_mut().zip([("fox", "cpu"), ("builtin", "cpu")]) {
            let (dataset, device) = (Some(dataset.to_owned()), Some(device.to_owned()));
            watched.run.order = Some(Order { config: "long.py".to_owned(), dataset, device, name: None });
        }
        rig.runs[2].run.order = Some(Order { config: "tiny".to_owned(), ..Order::default() });
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
        let mut compared = Compared::default();
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
