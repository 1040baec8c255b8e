//! Dumps our events in the trace's form.
use headroom_shared::{
    dtype::Dtype,
    gpt::{GptConfig, GptShape},
    hardware::ComputeCapability,
    memory::{
        allocator::SegmentKind,
        program::Action,
        run::{Card, program},
        simulate::simulate,
    },
    train_config::*,
};
use std::io::Read;
#[test]
fn dump() {
    let Ok(name) = std::env::var("TRACE") else { return };
    let path = format!("{}/golden/truth/traces/{name}.jsonl.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    if let Ok(p) = std::env::var("TRACEPATH") {
        text = std::fs::read_to_string(p).unwrap();
    } else {
        flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    }
    let c: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let n = |k: &str| c[k].as_u64().unwrap();
    let config = GptConfig::new(GptShape {
        n_layer: n("n_layer"),
        n_head: n("n_head"),
        n_embd: n("n_embd"),
        block_size: n("block"),
        vocab_size: n("vocab"),
        dropout: c["dropout"].as_f64().unwrap(),
        bias: c["bias"] == true,
    })
    .unwrap();
    let train = TrainConfig {
        batch_size: n("batch"),
        gradient_accumulation_steps: n("grad_accum"),
        dtype: match c["dtype"].as_str().unwrap() {
            "bfloat16" => Dtype::Bfloat16,
            "float16" => Dtype::Float16,
            _ => Dtype::Float32,
        },
        compile: c["compile"] == true,
        attention: if c["flash"] == true { Attention::Flash } else { Attention::Math },
        activation_checkpointing: c["ckpt"] == true,
        eval_iters: 2,
        eval_interval: 100,
        max_iters: 1,
        ..TrainConfig::default()
    };
    let p =
        program(&config, &train, Card { compute_capability: ComputeCapability { major: 8, minor: 9 }, sm_count: 46 })
            .unwrap();
    let out = simulate(&p, SegmentKind::Native, u64::MAX);
    let mut slots: Vec<String> = vec![String::new(); p.n_slots];
    for played in &out.played {
        println!("== {}", played.phase.name());
        let s = &p.sections[played.section.index()];
        let (dims, bytes) = p.sizes(s.batch);
        for e in &s.events {
            match e.action() {
                Action::Alloc(st, layer) => {
                    let t = format!("{} {}", bytes.of(st), st.dtype(dims.compute).name());
                    println!("+{t} # {}", st.name(layer));
                    slots[e.slot().index()] = format!("{} # {}", bytes.of(st), st.name(layer));
                }
                Action::Free => println!("-{}", slots[e.slot().index()]),
            }
        }
        for (f, t) in &s.renames {
            let x = slots[f.index()].clone();
            slots[t.index()] = x;
        }
    }
}
