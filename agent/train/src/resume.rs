//! Search for resumable runs, for commands that name no run.

use std::{fs, io, path::Path, time::SystemTime};

use super::checkpoint;
use crate::data::dataset;

/// Upper bound of the directories that are searched.
const FOLDERS_MAX: usize = 10_000;

/// A run that can be resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The name of its directory.
    pub out_dir: String,
    /// Its data set; `None` if its checkpoint cannot be read.
    pub dataset: Option<String>,
    /// Completed iterations; `None` if its checkpoint cannot be read.
    pub iter_num: Option<u64>,
    /// The time at which its last checkpoint was written.
    saved: SystemTime,
}

/// Returns the runs with directories in `here`, newest first. `dataset` excludes runs of other data sets.
///
/// # Errors
/// `here` cannot be listed.
pub fn candidates(here: &Path, dataset: Option<&str>) -> io::Result<Vec<Candidate>> {
    let entries = fs::read_dir(here)?.take(FOLDERS_MAX).flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<Candidate> = names.filter_map(|name| candidate(here, name)).collect();
    // An unreadable checkpoint may belong to any data set. Resuming an older run instead would hide it.
    let is_meant = |run: &Candidate| match (&run.dataset, dataset) {
        (Some(of_run), Some(given)) => is_same_dataset(here, of_run, given),
        _ => true,
    };
    found.retain(is_meant);
    found.sort_by(|one, other| other.saved.cmp(&one.saved).then_with(|| other.out_dir.cmp(&one.out_dir)));
    Ok(found)
}

fn candidate(here: &Path, out_dir: String) -> Option<Candidate> {
    let folder = here.join(&out_dir);
    let path = checkpoint::find(&folder).or_else(|| checkpoint::of_nanogpt(&folder))?;
    let saved = path.metadata().and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let meta = checkpoint::load_meta(&path).ok();
    let dataset = |meta: &checkpoint::Meta| Some(meta.config.get("dataset")?.as_str()?.to_owned());
    Some(Candidate {
        out_dir,
        dataset: meta.as_ref().and_then(dataset),
        iter_num: meta.as_ref().map(|meta| meta.state.iter_num),
        saved,
    })
}

/// Returns whether two names, or a name and a directory, are the same data set.
pub fn is_same_dataset(here: &Path, one: &str, other: &str) -> bool {
    let folder = |name: &str| dataset::resolve(name, here).ok()?.canonicalize().ok();
    one == other || folder(one).is_some_and(|one| folder(other) == Some(one))
}

/// Chooses the run to resume: the newest in a directory with a default name (one of `defaults`, with or without a
/// number), otherwise the newest of all. Returns `None` if the runs have several data sets.
#[must_use]
pub fn choose<'a>(runs: &'a [Candidate], defaults: &[&str]) -> Option<&'a Candidate> {
    let mut datasets = runs.iter().filter_map(|run| run.dataset.as_deref());
    let first = datasets.next();
    if datasets.any(|other| Some(other) != first) {
        return None;
    }
    let is_default = |run: &&Candidate| defaults.iter().any(|name| is_numbered(&run.out_dir, name));
    runs.iter().find(is_default).or_else(|| runs.first())
}

/// Returns whether a directory is `name`, or `name-2`, `name-3` and so on.
fn is_numbered(folder: &str, name: &str) -> bool {
    let Some(rest) = folder.strip_prefix(name) else { return false };
    let number = rest.strip_prefix('-').unwrap_or_default();
    rest.is_empty() || (!number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(out_dir: &str, dataset: Option<&str>, age_seconds: u64) -> Candidate {
        let saved = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - age_seconds);
        Candidate { out_dir: out_dir.to_owned(), dataset: dataset.map(str::to_owned), iter_num: Some(1), saved }
    }

    #[test]
    fn newest_run_in_a_default_folder_is_chosen() {
        let defaults = ["out", "out-stories"];
        let chosen = |runs: &[Candidate]| choose(runs, &defaults).map(|run| run.out_dir.clone());
        assert_eq!(chosen(&[]), None);
        let [mine, newest, oldest] =
            [("mine", 0), ("out-12", 1), ("out", 2)].map(|(name, age)| run(name, Some("a"), age));
        assert_eq!(chosen(&[mine.clone(), newest.clone(), oldest]), Some("out-12".to_owned()));
        assert_eq!(chosen(&[mine.clone(), run("out-old", Some("a"), 1)]), Some("mine".to_owned()));
        assert_eq!(chosen(&[newest, run("out-stories", Some("b"), 3)]), None);
        // An unreadable checkpoint is not skipped.
        assert_eq!(chosen(&[run("out-2", None, 0), run("out", Some("a"), 3)]), Some("out-2".to_owned()));
    }
}
