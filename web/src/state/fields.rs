//! The numbers of the form: which of nanoGPT's keys have one, and how their sliders move.

/// A key with a slider and a field.
#[derive(Clone, Copy, Debug)]
pub struct NumberKey {
    /// nanoGPT's name.
    pub key: &'static str,
    /// The slider's left end.
    pub min: f64,
    /// The slider's right end; it moves out to a larger value.
    pub max: f64,
    /// The slider's step.
    pub step: f64,
    /// Whether it is a share rather than a count.
    pub is_real: bool,
    /// Whether OpenAI's weights decide it.
    pub is_shape: bool,
}

const fn count(key: &'static str, max: f64) -> NumberKey {
    NumberKey { key, min: 1.0, max, step: 1.0, is_real: false, is_shape: false }
}

const fn shape(key: &'static str, min: f64, max: f64, step: f64) -> NumberKey {
    NumberKey { key, min, max, step, is_real: false, is_shape: true }
}

/// The fields that are always in view.
pub const NUMBERS: [NumberKey; 8] = [
    count("batch_size", 128.0),
    count("gradient_accumulation_steps", 64.0),
    NumberKey { is_shape: false, ..shape("block_size", 64.0, 4096.0, 64.0) },
    shape("n_layer", 1.0, 48.0, 1.0),
    shape("n_head", 1.0, 32.0, 1.0),
    shape("n_embd", 64.0, 2048.0, 64.0),
    shape("vocab_size", 64.0, 65_536.0, 64.0),
    NumberKey { key: "dropout", min: 0.0, max: 0.5, step: 0.05, is_real: true, is_shape: false },
];

/// The number of heads nearest to `wanted` that divides the channels; of two that are as near, the smaller. It depends on
/// nothing else, so a slider that is dragged one way moves one way.
pub fn nearest_head_count(n_embd: u64, wanted: u64) -> u64 {
    let divides = |heads: &u64| *heads > 0 && n_embd.is_multiple_of(*heads);
    let wanted = wanted.clamp(1, n_embd.max(1));
    let below = (1..=wanted).rev().find(divides).unwrap_or(1);
    let above = (wanted..=n_embd).find(divides).unwrap_or(below);
    if above - wanted < wanted - below { above } else { below }
}

/// The next number of heads above or below `now` that divides the channels; `now` where there is none.
pub fn next_head_count(n_embd: u64, now: u64, is_up: bool) -> u64 {
    let divides = |heads: &u64| *heads > 0 && n_embd.is_multiple_of(*heads);
    let found = if is_up { (now.saturating_add(1)..=n_embd).find(divides) } else { (1..now).rev().find(divides) };
    found.unwrap_or(now)
}

/// The nearest width, in steps of the heads, so that a slider never makes a model that cannot be.
pub fn next_width(n_head: u64, wanted: u64) -> u64 {
    let n_head = n_head.max(1);
    // Head sizes that are multiples of 8 are what attention kernels are fast at.
    let step = n_head.saturating_mul(8);
    let rounded = (wanted.saturating_add(step / 2) / step) * step;
    rounded.max(step)
}

/// The width one step of the heads above or below `now`.
pub fn step_width(n_head: u64, now: u64, is_up: bool) -> u64 {
    let step = n_head.max(1).saturating_mul(8);
    let wanted = if is_up { now.saturating_add(step) } else { now.saturating_sub(step) };
    next_width(n_head, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sliders_name_keys_that_nanogpt_has() {
        for number in NUMBERS {
            assert!(headroom_shared::nanogpt::defaults::find(number.key).is_some(), "{}", number.key);
            assert!(number.min < number.max);
        }
    }

    #[test]
    fn heads_snap_to_the_nearest_divisor_and_move_one_way() {
        for (wanted, expected) in [(13, 12), (14, 12), (15, 16), (11, 12), (10, 8), (0, 1), (20, 16), (21, 24)] {
            assert_eq!(nearest_head_count(768, wanted), expected, "{wanted}");
        }
        for n_embd in (64..=2048).step_by(32) {
            let heads: Vec<u64> = (1..=64).map(|wanted| nearest_head_count(n_embd, wanted)).collect();
            assert!(heads.is_sorted(), "{n_embd}: {heads:?}");
            assert!(heads.iter().all(|heads| n_embd % heads == 0), "{n_embd}: {heads:?}");
        }
    }

    #[test]
    fn keys_step_from_divisor_to_divisor() {
        for (now, is_up, expected) in [(12, true, 16), (12, false, 8), (1, false, 1), (768, true, 768), (7, true, 8)] {
            assert_eq!(next_head_count(768, now, is_up), expected, "{now}");
        }
        for (n_head, now, is_up, expected) in [(25, 1600, true, 1800), (12, 768, false, 672), (12, 96, false, 96)] {
            assert_eq!(step_width(n_head, now, is_up), expected, "{n_head} heads, {now}");
        }
    }

    #[test]
    fn widths_stay_multiples_of_the_heads() {
        assert_eq!(next_width(12, 768), 768);
        assert_eq!(next_width(12, 700), 672);
        assert_eq!(next_width(25, 1600), 1600);
        assert_eq!(next_width(12, 1), 96);
    }
}
