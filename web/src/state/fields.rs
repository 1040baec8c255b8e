//! The numeric fields of the form: their nanoGPT keys and their sliders' ranges.

/// A key with a slider and a field.
#[derive(Clone, Copy, Debug)]
pub struct NumberKey {
    /// nanoGPT's name.
    pub key: &'static str,
    /// The slider's minimum.
    pub min: f64,
    /// The slider's maximum; a larger value extends it.
    pub max: f64,
    /// The slider's step.
    pub step: f64,
    /// Whether the value is a share rather than a count.
    pub is_real: bool,
    /// Whether OpenAI's weights decide the value.
    pub is_shape: bool,
}

const fn count(key: &'static str, max: f64) -> NumberKey {
    NumberKey { key, min: 1.0, max, step: 1.0, is_real: false, is_shape: false }
}

const fn shape(key: &'static str, min: f64, max: f64, step: f64) -> NumberKey {
    NumberKey { key, min, max, step, is_real: false, is_shape: true }
}

/// The fields that are always visible.
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

/// Largest head count of the slider, unless the current count is larger.
const HEADS_MAX: u64 = 32;
/// Largest head count that is searched for divisors.
const SEARCHED_MAX: u64 = 4096;

/// The positions of the heads' slider: the divisors of the channels, in ascending order.
pub fn head_counts(n_embd: u64, n_head: u64) -> Vec<u64> {
    let max = n_embd.min(HEADS_MAX.max(n_head).min(SEARCHED_MAX));
    (1..=max).filter(|heads| n_embd.is_multiple_of(*heads)).collect()
}

/// Position of a head count among the divisors. A count that does not divide takes the next larger divisor.
pub fn head_position(heads: &[u64], n_head: u64) -> usize {
    heads.partition_point(|heads| *heads < n_head).min(heads.len().saturating_sub(1))
}

/// The step of the channels' slider, so that it never produces an invalid model. Attention kernels are fast for head
/// sizes that are multiples of 8.
pub fn width_step(n_head: u64) -> u64 {
    n_head.max(1).saturating_mul(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sliders_name_keys_that_nanogpt_has() {
        for number in NUMBERS {
            assert!(headroom_planner::nanogpt::defaults::find(number.key).is_some(), "{}", number.key);
            assert!(number.min < number.max);
        }
    }

    #[test]
    fn heads_have_a_position_for_each_divisor() {
        assert_eq!(head_counts(768, 12), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]);
        assert_eq!(head_counts(768, 48).last(), Some(&48));
        for n_embd in 64..=2048 {
            let heads = head_counts(n_embd, 12);
            assert!(heads.is_sorted() && heads.iter().all(|heads| n_embd % heads == 0), "{n_embd}: {heads:?}");
            for (position, n_head) in heads.iter().enumerate() {
                assert_eq!(head_position(&heads, *n_head), position, "{n_embd}");
            }
        }
        // 7 does not divide 768; neither do more heads than channels.
        assert_eq!((head_position(&head_counts(768, 7), 7), head_position(&head_counts(4, 9), 9)), (5, 2));
        assert!(head_counts(0, 12).is_empty());
        assert!(head_counts(u64::MAX, u64::MAX).len() <= 4096);
    }

    #[test]
    fn widths_are_multiples_of_the_heads() {
        for n_head in [1, 12, 25, 7, u64::MAX] {
            let step = width_step(n_head);
            assert!(step == u64::MAX || step.is_multiple_of(8) && step.is_multiple_of(n_head), "{n_head}");
        }
    }
}
