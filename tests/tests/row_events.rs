//! temp
mod truth;
use truth::rows;
use headroom_shared::memory::{program::Action, run::program, simulate::simulate, allocator::SegmentKind};
#[test]
fn dump() {
    let (Ok(file), Ok(tag)) = (std::env::var("ROWFILE"), std::env::var("ROWTAG")) else { return };
    for row in rows(&file) { if row.tag() != tag { continue; }
        let (c, t, k) = row.config();
        let p = program(&c, &t, k).unwrap();
        for kind in [SegmentKind::Native, SegmentKind::Expandable] { let o = simulate(&p, kind, u64::MAX); println!("mine {} {}", o.max_allocated_bytes, o.max_reserved_bytes); }
        println!("csv {:?} {:?} {:?}", row.bytes("max_memory_allocated"), row.bytes("max_memory_reserved"), row.bytes("max_memory_reserved_expandable"));
        let out = simulate(&p, SegmentKind::Native, u64::MAX);
        let mut ids = vec![0usize; p.n_slots]; let mut n = 0;
        for played in &out.played { let s = &p.sections[played.section.index()]; let (_, b) = p.sizes(s.batch);
            for e in &s.events { match e.action() { Action::Alloc(st, _) => { n += 1; ids[e.slot().index()] = n; println!("{{\"event\":\"alloc\",\"id\":{n},\"bytes\":{}}}", b.of(st)); } Action::Free => println!("{{\"event\":\"free\",\"id\":{}}}", ids[e.slot().index()]) } }
            for (f, t) in &s.renames { ids[t.index()] = ids[f.index()]; } }
    }
}
