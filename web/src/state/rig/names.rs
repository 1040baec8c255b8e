//! Names of GPUs and runs; those of runs distinguish runs with the same name.

use headroom_protocol::{event::EventKind, run::Run};

use super::Rig;
use crate::state::rig_charts::zone::UtcOffset;

/// The shown digits of a run's id, as in `headroom runs`.
const ID_DIGITS: usize = 8;

/// A run in a list: its name and its start, to the second. If another run has the same name and start, its id is
/// appended.
pub fn listed(rig: &Rig, run: &Run, zone: UtcOffset) -> String {
    let Run { id, name, started_ms, .. } = run;
    let is_twin = |other: &Run| other.name == *name && other.started_ms / 1000 == started_ms / 1000 && other.id != *id;
    let mut listed = format!("{name} · {}", zone.moment(*started_ms, true));
    if rig.runs.iter().any(|watched| is_twin(&watched.run)) {
        listed.push_str(" · ");
        listed.extend(id.chars().take(ID_DIGITS));
    }
    listed
}

/// A run among others: its name, or its name in a list if another has the same name.
pub fn called(rig: &Rig, run: &Run, others: impl IntoIterator<Item = impl AsRef<str>>, zone: UtcOffset) -> String {
    let is_twin = |other: &str| {
        rig.runs.iter().any(|watched| {
            let Run { id, name, .. } = &watched.run;
            id == other && *id != run.id && *name == run.name
        })
    };
    if others.into_iter().any(|other| is_twin(other.as_ref())) { listed(rig, run, zone) } else { run.name.clone() }
}

/// The name of a GPU, with its index if there are several.
pub fn gpu_name(rig: &Rig, uuid: &str) -> String {
    let name = |name: &str| name.trim_start_matches("NVIDIA ").to_owned();
    match rig.gpu(uuid) {
        Some(gpu) if rig.gpus.len() > 1 => format!("{}: {}", gpu.info.index, name(&gpu.info.name)),
        Some(gpu) => name(&gpu.info.name),
        // A GPU that was lost before the agent started is known only from its alert.
        None => {
            let named = rig.fired.iter().find(|fired| fired.gpu.as_deref() == Some(uuid));
            named.and_then(|fired| fired.gpu_name.as_deref()).map_or_else(|| uuid.to_owned(), name)
        }
    }
}

/// The name of a run. The event of its deletion has the name of a deleted run.
pub fn run_name(rig: &Rig, id: &str) -> String {
    let known = rig.runs.iter().find(|watched| watched.run.id == id).map(|watched| &watched.run.name);
    let deleted = || {
        rig.log.iter().find_map(|event| match &event.what {
            EventKind::RunDeleted { name } if event.run.as_deref() == Some(id) => name.as_ref(),
            _ => None,
        })
    };
    known.or_else(deleted).map_or_else(|| id.to_owned(), Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{
        rig::{
            ShownRun,
            sample::{T, run},
        },
        rig_charts::losses::Losses,
    };

    const UTC: UtcOffset = UtcOffset(|_| 0);

    fn rig(runs: &[(&str, &str, u64)]) -> Rig {
        let mut rig = Rig::default();
        for (id, name, later_ms) in runs {
            let run = Run { name: (*name).to_owned(), started_ms: T + later_ms, ..run(id) };
            rig.runs.push(ShownRun { run, losses: Losses::default(), is_whole: true, stopping_ms: None });
        }
        rig
    }

    #[test]
    fn runs_of_one_name_are_distinguished_by_the_second_and_else_by_their_numbers() {
        let rig = rig(&[
            ("0123456789", "stories", 0),
            ("89abcdef01", "stories", 2000),
            ("fedcba9876", "stories", 2999),
            ("ff", "owt", 2000),
        ]);
        let listed: Vec<_> = rig.runs.iter().map(|watched| listed(&rig, &watched.run, UTC)).collect();
        assert_eq!(
            listed,
            [
                "stories · 18 Nov, 11:06:40",
                "stories · 18 Nov, 11:06:42 · 89abcdef",
                "stories · 18 Nov, 11:06:42 · fedcba98",
                "owt · 18 Nov, 11:06:42"
            ]
        );
    }

    #[test]
    fn a_name_of_its_own_is_enough_among_few() {
        let rig = rig(&[("a", "stories", 0), ("b", "stories", 5000), ("c", "owt", 0)]);
        let called = |at: usize, others: &[&str]| called(&rig, &rig.runs[at].run, others, UTC);
        assert_eq!(called(0, &["a", "c"]), "stories");
        assert_eq!(called(0, &["a", "b", "c"]), "stories · 18 Nov, 11:06:40");
        assert_eq!(called(1, &["a"]), "stories · 18 Nov, 11:06:45");
        assert_eq!(called(2, &["a", "b"]), "owt");
    }
}
