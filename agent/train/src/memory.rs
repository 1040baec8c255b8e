//! Available memory of this machine, for comparison with a plan.

use std::fs;

/// Returns the bytes that programs can allocate without swapping, limited by this process's control group. `None` if
/// the system does not report them.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text));
    let group = group_bytes();
    match (system, group) {
        (Some(system), Some(group)) => Some(system.min(group)),
        (system, group) => system.or(group),
    }
}

fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the bytes that a control group, such as a container's, leaves.
fn group_bytes() -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok();
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_in_kibibytes() {
        let text = "MemTotal:       24632132 kB\nMemFree:          123 kB\nMemAvailable:   18123456 kB\n";
        assert_eq!(meminfo(text), Some(18_123_456 * 1024));
    }

    #[test]
    fn invalid_meminfo_gives_none() {
        for text in ["", "MemAvailable:", "MemAvailable: many kB", "MemAvailable: 99999999999999999999 kB"] {
            assert_eq!(meminfo(text), None, "{text}");
        }
    }
}
