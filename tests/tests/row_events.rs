//! temp
mod truth;
use headroom_shared::memory::{allocator::SegmentKind, program::Action, run::program, simulate::simulate};
use std::fmt::Write;
use truth::rows;
#[test]
fn dump() {
    let Ok(dir) = std::env::var("EVENTS_DIR") else { return };
    for file in
        ["eager_sm89", "eager_sm90", "compile_sm89", "compile_sm90", "variants_eager_sm89", "variants_compile_sm89"]
    {
        for (i, row) in rows(file).into_iter().enumerate() {
            let (c, t, k) = row.config();
            let p = program(&c, &t, k).unwrap();
            let mut s = String::new();
            let out = simulate(&p, SegmentKind::Native, u64::MAX);
            let e = simulate(&p, SegmentKind::Expandable, u64::MAX);
            let mut ids = vec![0usize; p.n_slots];
            let mut n = 0;
            for played in &e.played {
                let sec = &p.sections[played.section.index()];
                let (_, b) = p.sizes(sec.batch);
                for ev in &sec.events {
                    match ev.action() {
                        Action::Alloc(st, _) => {
                            n += 1;
                            ids[ev.slot().index()] = n;
                            writeln!(s, "{{\"event\":\"alloc\",\"id\":{n},\"bytes\":{}}}", b.of(st)).unwrap();
                        }
                        Action::Free => {
                            writeln!(s, "{{\"event\":\"free\",\"id\":{}}}", ids[ev.slot().index()]).unwrap()
                        }
                    }
                }
                for (f, t) in &sec.renames {
                    ids[t.index()] = ids[f.index()];
                }
            }
            std::fs::write(format!("{dir}/{file}_{i}.jsonl"), s).unwrap();
            println!(
                "{file} {i} {} {} {} {} {} {} | {}",
                out.max_allocated_bytes,
                out.max_reserved_bytes,
                e.max_reserved_bytes,
                row.bytes("max_memory_allocated").unwrap(),
                row.bytes("max_memory_reserved").unwrap(),
                row.bytes("max_memory_reserved_expandable").unwrap(),
                row.tag()
            );
        }
    }
}
