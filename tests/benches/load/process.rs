//! Resource usage of a process, as the kernel counts it.

use std::{collections::BTreeMap, fs, io, time::Duration};

/// Resources used so far.
#[derive(Clone, Copy, Debug)]
pub struct ResourceUsage {
    /// CPU time in user and kernel mode, on all cores.
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
}

/// Reads a process's usage. CPU time has a resolution of one tick, which is ten milliseconds.
pub fn taken(pid: u32) -> io::Result<ResourceUsage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let odd = || io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid} reads otherwise than expected"));
    // The name is in parentheses and may have any character. The fields after it are words; 14 and 15 are the CPU
    // times.
    let (_, words) = stat.rsplit_once(')').ok_or_else(odd)?;
    let words: Vec<&str> = words.split_whitespace().collect();
    let ticks = |idx: usize| words.get(idx).and_then(|word| word.parse::<u64>().ok());
    let ticks = ticks(11).zip(ticks(12)).map(|(own, kernel)| own + kernel).ok_or_else(odd)?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let kib: u64 = resident.and_then(|kib| kib.parse().ok()).ok_or_else(odd)?;
    let ticks_a_second = rustix::param::clock_ticks_per_second().max(1);
    Ok(ResourceUsage { cpu: Duration::from_secs_f64(ticks as f64 / ticks_a_second as f64), resident_bytes: kib * 1024 })
}

/// Returns the CPU time of each running thread so far, in nanoseconds, summed by thread name. Ended threads are not
/// included.
pub fn threads(pid: u32) -> io::Result<BTreeMap<String, Duration>> {
    let mut threads = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let folder = task?.path();
        // A thread may end during the loop.
        let (Ok(name), Ok(times)) =
            (fs::read_to_string(folder.join("comm")), fs::read_to_string(folder.join("schedstat")))
        else {
            continue;
        };
        let nanos = times.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        *threads.entry(name.trim().to_owned()).or_default() += Duration::from_nanos(nanos);
    }
    Ok(threads)
}

/// Returns the mean number of busy cores between two readings.
pub fn cores(before: ResourceUsage, after: ResourceUsage, wall: Duration) -> f64 {
    after.cpu.saturating_sub(before.cpu).as_secs_f64() / wall.as_secs_f64()
}
