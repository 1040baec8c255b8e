//! A run small enough to repeat a thousand times: the reference model, dropout, random batches and AdamW.

use headroom_kernels::{
    layout::Layout,
    reference::{
        adamw_update::{AdamW, adamw_update},
        gpt::{DropoutPass, Gpt},
    },
    rng::Stream,
};
use headroom_planner::gpt::{GptConfig, GptShape};

use super::super::{Checkpoint, Meta, State};

pub struct Trainer {
    gpt: Gpt,
    checkpoint: Checkpoint,
    batches: Stream,
}

impl Trainer {
    pub fn new(shape: GptShape) -> Self {
        let gpt = GptConfig::new(shape).expect("a shape");
        let len = Layout::new(&gpt).expect("small").len();
        let mut init = Stream::new(1337, 0);
        #[expect(clippy::cast_possible_truncation, reason = "any numbers will do")]
        let params = (0..len).map(|_| (0.1 * init.normal()) as f32).collect();
        let mut state = State::default();
        state.streams.insert("batches".to_owned(), Stream::new(1337, 1).into());
        let meta = Meta { gpt, config: serde_json::Map::new(), state, tokenizer: None };
        Self::resumed(Checkpoint { meta, params, exp_avg: vec![0.0; len], exp_avg_sq: vec![0.0; len] })
    }

    pub fn resumed(checkpoint: Checkpoint) -> Self {
        let config = checkpoint.meta.gpt;
        let t = usize::try_from(config.block_size()).expect("small");
        let gpt = Gpt::new(&config, t).expect("small");
        let batches = checkpoint.meta.state.streams["batches"].into();
        Self { gpt, checkpoint, batches }
    }

    pub fn checkpoint(&self) -> Checkpoint {
        let mut checkpoint = self.checkpoint.clone();
        checkpoint.meta.state.streams.insert("batches".to_owned(), self.batches.into());
        checkpoint
    }

    /// Performs one iteration. Returns its loss.
    pub fn step(&mut self) -> f32 {
        let Checkpoint { meta, params, exp_avg, exp_avg_sq } = &mut self.checkpoint;
        let v = meta.gpt.vocab_size();
        let tokens = 2 * meta.gpt.block_size();
        let inp: Vec<u32> = (0..tokens).map(|_| u32::try_from(self.batches.below(v)).expect("small")).collect();
        let targets: Vec<u32> =
            inp.iter().map(|&token| u32::try_from(u64::from(token * 3 + 1) % v).expect("small")).collect();
        let dropout = DropoutPass { p: meta.gpt.dropout(), key: meta.state.iter_num };
        let pass = self.gpt.forward(params, &inp, &targets, dropout);
        let mut grads = vec![0.0; params.len()];
        self.gpt.backward(&mut grads, params, &pass, &inp, &targets, 1.0);
        meta.state.iter_num += 1;
        meta.state.optimizer_step += 1;
        let adamw = AdamW {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.95,
            eps: AdamW::EPS,
            weight_decay: 0.1,
            step: meta.state.optimizer_step,
            gradient_scale: 1.0,
        };
        adamw_update(params, exp_avg, exp_avg_sq, &grads, adamw);
        pass.loss()
    }
}
