//! Every recorded row against the simulation: live bytes by phase, allocated, reserved.
mod truth;
use truth::{Row, rows};
#[test]
fn dump() {
    let file = std::env::var("ROWS").unwrap_or_else(|_| "eager_sm89".into());
    for row in rows(&file) {
        let r = row.replay();
        let mut line = format!("{:45}", row.tag());
        for (column, phase) in Row::PHASES {
            if let (Some(want), Some(got)) = (row.bytes(column), r.phases.iter().find(|p| p.phase.name() == *phase)) {
                if want == 0 {
                    continue;
                }
                let d = got.live_bytes as i64 - want as i64;
                if d != 0 {
                    line += &format!(" {column}:{d}");
                }
            }
        }
        let rel = |got: u64, c: &str| row.bytes(c).map_or(0.0, |w| (got as f64 / w as f64 - 1.0) * 100.0);
        line += &format!(
            " | live {} alloc {:+.3}% res {:+.2}%",
            r.live_bytes_peak as i64 - row.bytes("live_bytes_peak").unwrap_or(0) as i64,
            rel(r.max_allocated_bytes, "max_memory_allocated"),
            rel(r.max_reserved_bytes, "max_memory_reserved")
        );
        let e = row.replay_expandable();
        line += &format!(" exp {:+.2}%", rel(e.max_reserved_bytes, "max_memory_reserved_expandable"));
        println!("{line}");
    }
}
