//! What history costs with eight cards, printed and not judged: a machine's disk and its other work are in it.
//!
//! `cargo test -p headroom-agent --no-default-features --release bench_of -- --ignored --nocapture`

use std::time::Instant;

use headroom_shared::protocol::history::POINTS_MAX;

use super::*;

const N_CARDS: u32 = 8;
const N_DAYS: u64 = 30;
const N_SECONDS: u64 = 600;

fn of_all(time_ms: u64) -> Arc<Telemetry> {
    // Figures that change, as a card's do.
    let wave = |gpu: u32| (time_ms / 100 * 7919 + u64::from(gpu) * 104_729) % 1009;
    let gpus = (0..N_CARDS).map(|gpu| Sample {
        power_watts: Reading::Is(300.0 + wave(gpu) as f64 / 7.0),
        utilization_percent: Reading::Is(wave(gpu) % 101),
        clock_sm_mhz: Reading::Is(1200 + wave(gpu)),
        temperature_celsius: Reading::Is(40 + wave(gpu) % 40),
        ..sample(gpu, (60 << 30) + wave(gpu) * (1 << 20))
    });
    Arc::new(Telemetry { seq: 0, time_ms, gpus: gpus.collect() })
}

fn rig() -> Rig {
    let rig = Rig::new();
    rig.queue.set_inventory((0..N_CARDS).map(gpu).collect());
    rig
}

/// Time of each call, sorted.
fn timed(n: u32, mut call: impl FnMut()) -> Vec<f64> {
    let mut times: Vec<f64> = (0..n)
        .map(|_| {
            let begin = Instant::now();
            call();
            begin.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times
}

#[test]
#[ignore = "it measures, and takes a minute"]
fn bench_of_a_second_of_eight_cards() {
    let mut rig = rig();
    let mut times = Vec::new();
    // An hour before, so that full rate is cut as well.
    for second in 0..3600 + N_SECONDS {
        for moment in 0..10 {
            rig.queue.push_telemetry(of_all(rig.now_ms + moment * 100));
        }
        rig.now_ms += 1000;
        let begin = Instant::now();
        rig.turn();
        if second >= 3600 {
            times.push(begin.elapsed().as_secs_f64() * 1000.0);
        }
    }
    times.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "a second of {N_CARDS} cards at 10 Hz: {:.2} ms in the median, {mean:.2} mean, {:.2} p99, {:.2} most; \
         {:.2} % of a core",
        at(50),
        at(99),
        at(100),
        mean / 10.0
    );
    let bytes = std::fs::metadata(rig.path()).expect("the file").len();
    println!("an hour at full rate: {:.1} MB, {:.2} MB a card", bytes as f64 / 1e6, bytes as f64 / 1e6 / 8.0);
    let idle = timed(1000, || rig.turn_after(1));
    println!("a turn with nothing to do: {:.3} ms", idle[500]);
}

#[test]
#[ignore = "it measures, and takes a minute"]
fn bench_of_a_month_of_eight_cards() {
    let mut rig = rig();
    rig.turn();
    // A month as it would be kept: minutes for all of it, 10 seconds for two days, full rate for an hour.
    let begin_ms = START_MS;
    let end_ms = begin_ms + N_DAYS * DAY_MS;
    let connection = Connection::open(rig.path()).expect("the file");
    connection.execute_batch("BEGIN").expect("a transaction");
    for gpu in 0..N_CARDS {
        let (row, uuid) = (gpu + 1, uuid(gpu));
        connection
            .execute("INSERT INTO gpus VALUES (?1, ?2, 'H200') ON CONFLICT DO NOTHING", (row, uuid))
            .expect("a card");
    }
    let columns = |n: u32| {
        let one = format!("{n}, abs(random()) % 100000000, abs(random()) % 1000000 / 7.0, abs(random()) % 100000000");
        [one.as_str(); 7].join(", ")
    };
    let times = "WITH RECURSIVE t(x) AS (SELECT ?1 UNION ALL SELECT x + ?3 FROM t WHERE x + ?3 < ?2) ";
    let bound = |from_ms: u64, step_ms: u64| [from_ms, end_ms, step_ms].map(|ms| i64::try_from(ms).expect("a time"));
    for (table, from_ms, step_ms, n) in
        [("samples_1min", begin_ms, 60_000, 600), ("samples_10s", end_ms - 2 * DAY_MS, 10_000, 100)]
    {
        let sql = format!("INSERT INTO {table} {times} SELECT g.id, x, {}, 4 FROM gpus g, t", columns(n));
        connection.execute(&sql, bound(from_ms, step_ms)).expect("rows");
    }
    let r = "abs(random()) % 100000";
    let sql = format!(
        "INSERT INTO samples {times} SELECT x, g.id, {r} * 1000000, {r} * 1000000, {r}, {r} % 100, {r} % 100, {r} / 7.0, \
         {r} % 2000, {r} % 10000, {r} % 90, 4, 0 FROM gpus g, t"
    );
    connection.execute(&sql, bound(end_ms - HOUR_MS, 100)).expect("rows");
    connection.execute_batch("COMMIT").expect("written");
    drop(connection);
    let mega = |table: &str| {
        let connection = Connection::open(rig.path()).expect("the file");
        let bytes: Option<i64> = connection
            .query_row("SELECT sum(pgsize) FROM dbstat WHERE name = ?1", [table], |row| row.get(0))
            .unwrap_or(None);
        bytes.map_or(f64::NAN, |bytes| bytes as f64 / 1e6)
    };
    for (table, days) in [("samples", 1.0 / 24.0), ("samples_10s", 2.0), ("samples_1min", N_DAYS as f64)] {
        let megabytes = mega(table);
        let a_day = megabytes / days / f64::from(N_CARDS);
        println!("{table}: {} rows, {megabytes:.1} MB, {a_day:.2} MB a day and card", rig.count(table));
    }
    println!("the file: {:.1} MB", std::fs::metadata(rig.path()).expect("the file").len() as f64 / 1e6);
    let archive = rig.archive.clone();
    for (name, range_ms, n_points) in [
        ("1 h", HOUR_MS, POINTS_MAX),
        ("1 h", HOUR_MS, 400),
        ("24 h", DAY_MS, POINTS_MAX),
        ("24 h", DAY_MS, 400),
        ("30 d", N_DAYS * DAY_MS, POINTS_MAX),
        ("30 d", N_DAYS * DAY_MS, 400),
    ] {
        let mut n = 0;
        let times = timed(11, || {
            n = archive.history(fast(&uuid(3)), end_ms - range_ms, end_ms, n_points).expect("a range").times_ms.len();
        });
        println!("history of {name}, {n_points} points asked: {n} points in {:.1} ms, {:.1} most", times[5], times[10]);
    }
    let begin = Instant::now();
    rig.writer = Writer::new(HistoryFile::new(rig.folder.path()), Keep::default(), Role::Agent);
    rig.now_ms = end_ms;
    rig.turn();
    println!("opened and looked through in {:.0} ms", begin.elapsed().as_secs_f64() * 1000.0);
    let begin = Instant::now();
    let bytes = archive.backup(&rig.folder.path().join("copy")).expect("a copy");
    println!("copied {:.1} MB in {:.0} ms", bytes as f64 / 1e6, begin.elapsed().as_secs_f64() * 1000.0);
}
