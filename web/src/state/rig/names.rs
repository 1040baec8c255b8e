//! What runs are called where several of one name stand together.

use headroom_shared::protocol::run::Run;

use super::Rig;
use crate::state::rig_charts::zone::Zone;

/// Digits of a run's number that are shown: as many as `headroom runs` has.
const ID_DIGITS: usize = 8;

/// A run in a list: its name and when it began, to the second; and where another has both in common with it, its number.
pub fn listed(rig: &Rig, run: &Run, zone: Zone) -> String {
    let Run { id, name, started_ms, .. } = run;
    let is_twin = |other: &Run| other.name == *name && other.started_ms / 1000 == started_ms / 1000 && other.id != *id;
    let mut listed = format!("{name} · {}", zone.moment(*started_ms, true));
    if rig.runs.iter().any(|watched| is_twin(&watched.run)) {
        listed.push_str(" · ");
        listed.extend(id.chars().take(ID_DIGITS));
    }
    listed
}

/// A run among others that are told apart by their names: its name, or as in a list where that is another's too.
pub fn called(rig: &Rig, run: &Run, others: impl IntoIterator<Item = impl AsRef<str>>, zone: Zone) -> String {
    let is_twin = |other: &str| {
        rig.runs.iter().any(|watched| {
            let Run { id, name, .. } = &watched.run;
            id == other && *id != run.id && *name == run.name
        })
    };
    if others.into_iter().any(|other| is_twin(other.as_ref())) { listed(rig, run, zone) } else { run.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{
        rig::{
            Watched,
            sample::{T, run},
        },
        rig_charts::losses::Losses,
    };

    const UTC: Zone = Zone(|_| 0);

    fn rig(runs: &[(&str, &str, u64)]) -> Rig {
        let mut rig = Rig::default();
        for (id, name, later_ms) in runs {
            let run = Run { name: (*name).to_owned(), started_ms: T + later_ms, ..run(id) };
            rig.runs.push(Watched { run, losses: Losses::default(), is_whole: true, stopping_ms: None });
        }
        rig
    }

    #[test]
    fn runs_of_one_name_are_told_apart_by_the_second_and_else_by_their_numbers() {
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
