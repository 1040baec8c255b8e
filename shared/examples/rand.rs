use headroom_shared::{session::*, nanogpt::Source, plan::plan};
fn main() {
    let mut x = 12345u64; let mut r = |n: u64| { x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (x >> 33) % n };
    for _ in 0..160 {
        let h = r(12) + 1; let d = [32, 64, 64, 64, 96][r(5) as usize];
        let text = format!("n_layer={}\nn_head={h}\nn_embd={}\nbatch_size={}\nblock_size={}\nvocab_size={}\ncompile={}\ndropout={}\nbias={}\ngradient_accumulation_steps={}\ndtype='{}'\n", r(10)+1, h*d, r(24)+1, [64,200,256,512,1024][r(5) as usize], [65,50257,50304][r(3) as usize], ["True","False"][r(2) as usize], ["0.0","0.1"][r(2) as usize], ["True","False"][r(2) as usize], [1,2,8,40][r(4) as usize], ["bfloat16","float16","float32"][r(3) as usize]);
        let q = resolve(&[Source::File { name: "c".into(), text: text.clone() }], &Options { gpu: "B200".into(), expandable_segments: r(2) == 1, ..Default::default() });
        match q.request { Some(q) => { let p = plan(q).unwrap(); println!("{} {} {} | {}", p.peak.max_reserved_bytes, p.peak.max_allocated_bytes, p.n_events(), text.replace('\n', ";")); } None => println!("none") }
    }
}
