//! Which processes use a card, and how much of its memory: those that compute and those that draw, together.

use std::collections::BTreeMap;

use headroom_shared::protocol::reading::{Reading, Why};
use nvml_wrapper::{Device, enums::device::UsedGpuMemory, error::NvmlError, struct_wrappers::device::ProcessInfo};

use super::answers::{Answers, most, plausible};

/// A process on a card.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// As the host counts it.
    pub pid: u32,
    /// What it has of the card.
    pub memory_used_bytes: Reading<u64>,
}

/// Processes of a card at most; a driver that tells of more is not believed.
const USERS_MAX: usize = 1024;

/// Reads who uses a card: the largest first, and those whose memory is hidden last.
pub fn users(device: &Device<'_>, windows: bool, split: bool, answers: &mut Answers) -> Reading<Vec<User>> {
    let hidden = if windows {
        Why::HiddenByWindows
    } else if split {
        // A card that is split tells only its administrator who is on its parts.
        Why::NoPermission
    } else {
        Why::NotSupported
    };
    let answer = both(
        or_older(device.running_compute_processes(), || device.running_compute_processes_v2()),
        or_older(device.running_graphics_processes(), || device.running_graphics_processes_v2()),
    );
    match answers.reading(answer) {
        Reading::Is(lists) => Reading::Is(merge(&lists, hidden)),
        Reading::Missing { missing: Why::NotSupported } if windows => Reading::missing(Why::HiddenByWindows),
        missing => missing.map(|_| vec![]),
    }
}

type Answer = Result<Vec<ProcessInfo>, NvmlError>;

/// A driver before 510 has the calls in their version before.
fn or_older(answer: Answer, older: impl FnOnce() -> Answer) -> Answer {
    match answer {
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => older(),
        answer => answer,
    }
}

/// A card of a server may not draw, and its answer is then of those that compute alone.
fn both(compute: Answer, graphics: Answer) -> Result<[Vec<ProcessInfo>; 2], NvmlError> {
    match (compute, graphics) {
        (Ok(compute), graphics) => Ok([compute, graphics.unwrap_or_default()]),
        (Err(_), Ok(graphics)) => Ok([vec![], graphics]),
        (Err(error), Err(_)) => Err(error),
    }
}

/// One process computes and draws with the same memory, which both lists have; in one list it stands once for each
/// instance of a split card.
fn merge(lists: &[Vec<ProcessInfo>], hidden: Why) -> Vec<User> {
    let mut users: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for list in lists {
        let mut of_list: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        for process in list.iter().take(USERS_MAX) {
            let used = match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            let sum = of_list.entry(process.pid).or_default();
            *sum = used.map(|bytes| sum.unwrap_or(0).saturating_add(bytes)).or(*sum);
        }
        for (pid, used) in of_list {
            let most = users.entry(pid).or_default();
            *most = (*most).max(used);
        }
    }
    let mut users: Vec<(u32, Option<u64>)> = users.into_iter().collect();
    users.sort_by_key(|(pid, used)| (std::cmp::Reverse(*used), *pid));
    let reading =
        |used: Option<u64>| used.map_or(Reading::missing(hidden), |bytes| plausible(bytes, most::MEMORY_BYTES));
    users.into_iter().map(|(pid, used)| User { pid, memory_used_bytes: reading(used) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, bytes: Option<u64>) -> ProcessInfo {
        let used_gpu_memory = bytes.map_or(UsedGpuMemory::Unavailable, UsedGpuMemory::Used);
        ProcessInfo { pid, used_gpu_memory, gpu_instance_id: None, compute_instance_id: None }
    }

    #[test]
    fn those_with_most_memory_come_first_and_nobody_twice() {
        let compute = vec![process(1, Some(10)), process(2, None), process(3, Some(30)), process(3, Some(5))];
        let graphics = vec![process(1, Some(10)), process(4, Some(20))];
        let hidden = Reading::missing(Why::HiddenByWindows);
        let user = |pid, memory_used_bytes| User { pid, memory_used_bytes };
        let is = |pid, bytes| user(pid, Reading::Is(bytes));
        assert_eq!(
            merge(&[compute, graphics], Why::HiddenByWindows),
            [is(3, 35), is(4, 20), is(1, 10), user(2, hidden)]
        );
    }

    #[test]
    fn a_card_that_cannot_draw_tells_who_computes() {
        let lists = both(Ok(vec![process(1, Some(1))]), Err(NvmlError::NotSupported)).expect("half an answer is one");
        assert_eq!(lists.map(|list| list.len()), [1, 0]);
        both(Err(NvmlError::NoPermission), Err(NvmlError::NotSupported)).expect_err("no answer");
    }
}
