use headroom_shared::{session::*, nanogpt::Source, plan::plan};
fn main() {
    let src = |t: &str| vec![Source::File { name: "c.py".into(), text: t.into() }];
    let text = std::env::args().nth(1).unwrap(); let n: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let r = resolve(&src(&text.replace(';', "\n")), &Options { gpu: "B200".into(), ..Default::default() });
    let mut best = f64::MAX;
    for _ in 0..n { let rq = r.request.clone().unwrap(); let t = std::time::Instant::now(); let p = plan(rq).unwrap(); best = best.min(t.elapsed().as_secs_f64()*1e3); std::hint::black_box(p); }
    let p = plan(r.request.clone().unwrap()).unwrap(); println!("{text}: {best:.3} ms events {} written {:?} played {:?}", p.n_events(), p.n_written(), p.phases.len());
}
