//! The fields of the form of a trainer other than nanoGPT.

use headroom_planner::trainers::{arguments::Key, input::Trainer};

/// A field with a slider: the option, and the ends and steps of the slider.
pub type Slider = (&'static str, u64, u64, u64);

/// The options of a trainer that people change first.
pub const fn sliders(trainer: Trainer) -> &'static [Slider] {
    match trainer {
        Trainer::Nanochat => &[("depth", 1, 32, 1), ("device-batch-size", 1, 64, 1), ("max-seq-len", 128, 4096, 128)],
        Trainer::Hf => &[
            ("per_device_train_batch_size", 1, 64, 1),
            ("max_length", 128, 8192, 128),
            ("gradient_accumulation_steps", 1, 64, 1),
            ("lora_r", 0, 128, 4),
        ],
    }
}

/// The options that have a list or a switch below the sliders.
pub const fn switches(trainer: Trainer) -> &'static [&'static str] {
    match trainer {
        Trainer::Nanochat => &["compile", "fp8"],
        Trainer::Hf => &["dtype", "optim", "bf16", "gradient_checkpointing"],
    }
}

/// The other options that change memory.
pub fn further(trainer: Trainer) -> impl Iterator<Item = &'static Key> {
    let is_first = move |name: &str| {
        sliders(trainer).iter().any(|(first, ..)| *first == name) || switches(trainer).contains(&name)
    };
    trainer.keys().iter().filter(move |key| key.affects_memory && !is_first(key.name))
}

/// The option of a name.
pub fn key(trainer: Trainer, name: &str) -> Option<&'static Key> {
    trainer.keys().iter().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_an_option_once() {
        for trainer in Trainer::ALL {
            let named = sliders(trainer).iter().map(|(name, ..)| *name).chain(switches(trainer).iter().copied());
            let named: Vec<_> = named.chain(further(trainer).map(|key| key.name)).collect();
            assert!(named.iter().all(|name| key(trainer, name).is_some()), "{named:?}");
            let n_memory = trainer.keys().iter().filter(|key| key.affects_memory).count();
            assert_eq!(named.len(), n_memory, "{named:?}");
        }
    }
}
