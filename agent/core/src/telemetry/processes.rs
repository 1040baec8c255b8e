//! The processes that use a GPU, for computing or graphics, and the memory of each.

use std::collections::BTreeMap;

use headroom_protocol::reading::{MissingReason, Reading};
use nvml_wrapper::{Device, enums::device::UsedGpuMemory, error::NvmlError, struct_wrappers::device::ProcessInfo};

use super::nvml_errors::{NvmlErrors, most, plausible};

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// The process id in the host's namespace.
    pub pid: u32,
    /// Its memory on the GPU, in bytes.
    pub memory_used_bytes: Reading<u64>,
}

/// Upper bound of a GPU's processes; the rest of a longer list is ignored.
const USERS_MAX: usize = 1024;

/// Reads the processes on a GPU: the largest first, and those with hidden memory last.
pub fn users(device: &Device<'_>, windows: bool, split: bool, answers: &mut NvmlErrors) -> Reading<Vec<User>> {
    let hidden = if windows {
        MissingReason::HiddenByWindows
    } else if split {
        // The processes of a GPU in MIG mode are visible only to the administrator.
        MissingReason::NoPermission
    } else {
        MissingReason::NotSupported
    };
    let answer = both(
        or_older(device.running_compute_processes(), || device.running_compute_processes_v2()),
        or_older(device.running_graphics_processes(), || device.running_graphics_processes_v2()),
    );
    match answers.reading(answer) {
        Reading::Is(lists) => Reading::Is(merge(&lists, hidden)),
        Reading::Missing { missing: MissingReason::NotSupported } if windows => {
            Reading::missing(MissingReason::HiddenByWindows)
        }
        missing => missing.map(|_| vec![]),
    }
}

type ProcessList = Result<Vec<ProcessInfo>, NvmlError>;

/// Falls back to the older version of a call, for drivers before 510.
fn or_older(answer: ProcessList, older: impl FnOnce() -> ProcessList) -> ProcessList {
    match answer {
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => older(),
        answer => answer,
    }
}

/// Joins both answers. A server GPU may not support graphics; the list then has computing processes only.
fn both(compute: ProcessList, graphics: ProcessList) -> Result<[Vec<ProcessInfo>; 2], NvmlError> {
    match (compute, graphics) {
        (Ok(compute), graphics) => Ok([compute, graphics.unwrap_or_default()]),
        (Err(_), Ok(graphics)) => Ok([vec![], graphics]),
        (Err(error), Err(_)) => Err(error),
    }
}

/// A process that computes and draws is in both lists with the same memory. Within one list a process appears once for
/// each MIG instance.
fn merge(lists: &[Vec<ProcessInfo>], hidden: MissingReason) -> Vec<User> {
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
    fn processes_are_sorted_by_memory_without_duplicates() {
        let compute = vec![process(1, Some(10)), process(2, None), process(3, Some(30)), process(3, Some(5))];
        let graphics = vec![process(1, Some(10)), process(4, Some(20))];
        let hidden = Reading::missing(MissingReason::HiddenByWindows);
        let user = |pid, memory_used_bytes| User { pid, memory_used_bytes };
        let is = |pid, bytes| user(pid, Reading::Is(bytes));
        assert_eq!(
            merge(&[compute, graphics], MissingReason::HiddenByWindows),
            [is(3, 35), is(4, 20), is(1, 10), user(2, hidden)]
        );
    }

    #[test]
    fn gpu_without_graphics_lists_compute_processes() {
        let lists = both(Ok(vec![process(1, Some(1))]), Err(NvmlError::NotSupported)).expect("one list is sufficient");
        assert_eq!(lists.map(|list| list.len()), [1, 0]);
        both(Err(NvmlError::NoPermission), Err(NvmlError::NotSupported)).expect_err("no answer");
    }
}
