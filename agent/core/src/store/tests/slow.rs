//! Slow readings are stored, rolled up and deleted like the others.

use headroom_protocol::{
    SlowReadings,
    metric::{HostSample, Metric, SlowSample},
};

use super::*;

/// Readings of both GPUs and the machine at a second; the second GPU has neither a fan nor ECC.
fn slow(time_ms: u64) -> Arc<SlowReadings> {
    let second = time_ms / 1000;
    let gpu_sample = |gpu: u32| SlowSample {
        gpu,
        fan_percent: (gpu == 0).then_some(second % 101).ok_or(MissingReason::NotSupported).into(),
        energy_joules: Reading::Is((second - START_MS / 1000) as f64 * 650.0),
        pcie_receive_bytes_per_second: Reading::Is(second % 1000 * 1_000_000),
        pcie_send_bytes_per_second: Reading::Is(0),
        ecc_uncorrected: Reading::missing(MissingReason::NotSupported),
        ..SlowSample::example(gpu, second)
    };
    let host = HostSample {
        cpu_percent: Reading::Is((second % 100) as f64),
        disk_free_bytes: Reading::missing(MissingReason::Failed),
        ..HostSample::example(second)
    };
    Arc::new(SlowReadings { time_ms, gpus: vec![gpu_sample(0), gpu_sample(1), gpu_sample(7)], host })
}

impl Rig {
    fn read_slowly_until(&mut self, until_ms: u64, every_ms: u64) {
        while self.now_ms < until_ms {
            let end_ms = (self.now_ms + 30 * every_ms).min(until_ms);
            for time_ms in (self.now_ms..end_ms).step_by(usize::try_from(every_ms).expect("small")) {
                self.queue.push_slow(slow(time_ms));
            }
            self.now_ms = end_ms;
            self.turn();
        }
    }

    fn slow_history(&self, group: Group, gpu: u32, from_ms: u64, n_points: u64) -> History {
        let uuid = uuid(gpu);
        let history = self.archive.history(Subject { group, gpu: &uuid }, from_ms, self.now_ms, n_points);
        let history = history.expect("a range");
        assert_eq!(history.series.len(), group.metrics().len());
        history
    }
}

fn series(history: &History, metric: Metric) -> &headroom_protocol::history::Series {
    &history.series[metric.place()]
}

#[test]
fn slow_readings_come_back_at_full_rate() {
    let mut rig = Rig::new();
    rig.read_slowly_until(START_MS + 60_000, 1000);
    let history = rig.slow_history(Group::Slow, 0, START_MS, 2000);
    assert_eq!((history.step_ms, history.times_ms.len()), (1000, 60));
    let fan = series(&history, Metric::Fan);
    let seconds = (0..60).map(|second| START_MS / 1000 + second);
    assert_eq!(fan.mean, seconds.clone().map(|second| Some((second % 101) as f64)).collect::<Vec<_>>());
    assert_eq!(series(&history, Metric::PcieSend).max, [Some(0.0); 60]);
    assert_eq!(series(&history, Metric::Energy).max[59], Some(59.0 * 650.0));
    assert_eq!(series(&history, Metric::EccUncorrected).mean, [None; 60], "a missing reading is not 0");
    for metric in Group::Slow.metrics().iter().filter(|metric| **metric != Metric::EccUncorrected) {
        let expected = (0..60).map(|second| slow(START_MS + second * 1000).gpus[0].reading(*metric));
        let expected = expected.map(|reading| reading?.get().map(|number| number.as_f64())).collect::<Vec<_>>();
        assert_eq!(series(&history, *metric).mean, expected, "{metric:?}");
        assert!(expected.iter().all(Option::is_some), "{metric:?}");
    }
    let second = rig.slow_history(Group::Slow, 1, START_MS, 2000);
    assert_eq!(series(&second, Metric::Fan).mean, [None; 60]);
    assert!(rig.slow_history(Group::Slow, 7, START_MS, 2000).times_ms.is_empty(), "GPU 7 is unknown");
    let host = rig.slow_history(Group::Host, 0, START_MS, 2000);
    let cpu = series(&host, Metric::HostCpu);
    assert_eq!(cpu.mean, seconds.map(|second| Some((second % 100) as f64)).collect::<Vec<_>>());
    assert_eq!(series(&host, Metric::HostDiskFree).mean, [None; 60]);
}

#[test]
fn slow_readings_are_rolled_up_and_cut_as_the_others_are() {
    let mut rig = Rig::new();
    rig.read_slowly_until(START_MS + 3 * HOUR_MS, 1000);
    for (table, n) in [("slow_samples", 2), ("host_samples", 1)] {
        assert!(rig.count(table) <= n * 3670, "{table}: an hour, and it has {}", rig.count(table));
        assert!(rig.count(&format!("{table}_10s")) >= n * 1079, "{table}: all three hours in tens of seconds");
        assert!(rig.count(&format!("{table}_1min")) >= n * 179, "{table}: all three hours in minutes");
    }
    let history = rig.slow_history(Group::Slow, 0, START_MS, 1080);
    assert_eq!((history.step_ms, history.times_ms.len()), (10_000, 1080));
    let energy = series(&history, Metric::Energy);
    assert_eq!((energy.min[3], energy.mean[3], energy.max[3]), (Some(19_500.0), Some(22_425.0), Some(25_350.0)));
    assert!(energy.max.is_sorted(), "a count only rises");
    let host = rig.slow_history(Group::Host, 0, START_MS, 180);
    assert_eq!((host.step_ms, host.times_ms.len()), (60_000, 180));
    let cpu = series(&host, Metric::HostCpu);
    let first: Vec<f64> = (0..60).map(|second| ((START_MS / 1000 + second) % 100) as f64).collect();
    assert_eq!(cpu.max[0], first.iter().copied().reduce(f64::max));
    assert_eq!(cpu.mean[0], Some(first.iter().sum::<f64>() / 60.0));
}

#[test]
fn slow_readings_are_kept_as_long_as_the_others() {
    let mut rig = Rig::new();
    rig.read_slowly_until(START_MS + 33 * DAY_MS, 600_000);
    for group in [Group::Slow, Group::Host] {
        let month = rig.slow_history(group, 1, START_MS, 2000);
        let age_ms = rig.now_ms - month.times_ms[0];
        assert!((30 * DAY_MS - 600_000..=30 * DAY_MS + HOUR_MS).contains(&age_ms), "{age_ms}");
    }
}

#[test]
fn a_file_that_is_too_large_loses_its_oldest_slow_readings_too() {
    let mut rig = Rig::new();
    let keep = RetentionLimits { bytes_max: 1 << 20, ..RetentionLimits::default() };
    rig.writer = Writer::new(HistoryFile::new(rig.folder.path()), keep, Role::Agent);
    rig.read_slowly_until(START_MS + 10 * DAY_MS, 60_000);
    let connection = Connection::open(rig.path()).expect("the file");
    let pragma = |name| -> i64 { connection.pragma_query_value(None, name, |row| row.get(0)).expect("a pragma") };
    assert!((pragma("page_count") - pragma("freelist_count")) * 4096 <= (1 << 20) + 65_536);
    let kept = rig.slow_history(Group::Host, 0, START_MS, 2000);
    assert!(kept.times_ms[0] > START_MS + DAY_MS, "{}", kept.times_ms[0]);
}

#[test]
fn readings_of_before_the_clock_was_put_back_count_once() {
    let mut rig = Rig::new();
    rig.read_slowly_until(START_MS + 10 * 60_000, 1000);
    rig.now_ms -= 330_000;
    let back_ms = rig.now_ms;
    rig.read_slowly_until(back_ms + 10 * 60_000, 1000);
    let connection = Connection::open(rig.path()).expect("the file");
    let sum = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a sum");
    let until_ms = START_MS + 9 * 60_000;
    let n_full = sum(&format!("SELECT count(*) FROM host_samples WHERE time_ms < {until_ms}"));
    assert_eq!(n_full, 9 * 60);
    for table in ["host_samples_10s", "host_samples_1min"] {
        assert_eq!(sum(&format!("SELECT sum(host_cpu_percent_n) FROM {table} WHERE time_ms < {until_ms}")), n_full);
    }
}
