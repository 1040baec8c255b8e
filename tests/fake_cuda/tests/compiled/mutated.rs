//! Mutation tests of the PTX: every one-line mutation in `tests/ptx/mutations.txt` is detected.

use headroom_kernels::{
    cuda::{BuiltinKernels, Device},
    reference::dropout::Dropout,
};
use headroom_ptx::mutations;

use crate::{
    adamw, attention, classifier, dropout, encoder, gelu, global_norm,
    gpu::{Outcome, is_noticed, normals_bf16},
    layernorm, losses, matmul,
};

/// Runs the checks that cover all code of an entry, cheapest first.
fn check(entry: &str, device: &Device) -> Outcome {
    let each = |checks: &[&dyn Fn() -> Outcome]| checks.iter().try_for_each(|check| check());
    let heads = |width: usize, p: f64| attention::Case::new([1, 200, 2, width - 8], p);
    // The widest heads of an entry, with and without dropout.
    let both = |width: usize, right: fn(&Device, &attention::Case) -> Outcome| {
        right(device, &heads(width, 0.0))?;
        right(device, &attention::Case::new([1, 70, 1, width], 0.3))
    };
    let mask = Dropout::new(0.3, 77);
    let forward = |sizes| layernorm::forward(device, sizes, true, (0.5, 2.0));
    let residual = |sizes| layernorm::residual(device, sizes, mask, false);
    let backward = |sizes| {
        layernorm::backward(device, sizes, true, true, 2)?;
        layernorm::backward(device, sizes, true, false, 2)
    };
    let parameters = || {
        matmul::parameters_are_right(device, &BuiltinKernels, matmul::SIZES[1], false)?;
        matmul::parameters_are_right(device, &BuiltinKernels, matmul::SIZES[2], true)?;
        matmul::parameters_are_right(device, &BuiltinKernels, matmul::SIZES[5], false)
    };
    let encoded = || {
        [1, 2, 3, 5].into_iter().try_for_each(|i| {
            encoder::masks().into_iter().try_for_each(|mask| encoder::backward_is_right(device, encoder::ALL[i], mask))
        })
    };
    let classified = |sizes: [usize; 2]| {
        sizes.into_iter().try_for_each(|i| classifier::check(device, classifier::ALL[i], 1.0, true))
    };
    if let Some(width) = entry.strip_prefix("attention_forward_") {
        return both(width.parse().expect("a width"), attention::forward_is_right);
    }
    if let Some((_, width)) = entry.strip_prefix("attention_backward_").and_then(|rest| rest.split_once('_')) {
        return both(width.parse().expect("a width"), attention::backward_is_right);
    }
    match entry {
        "attention_backward_rows" => both(64, attention::backward_is_right),
        "gelu_forward" => gelu::forward(device, &normals_bf16(2, 2056)),
        "gelu_backward" => gelu::backward(device, &normals_bf16(2, 2056), false),
        "dropout" => dropout::check(device, 5000, 0.5, false),
        "losses_sum" => each(&[&|| losses::check(device, 1025), &|| losses::check(device, 9000)]),
        "global_norm_squared_forward" | "global_norm_root" => {
            each(&[&|| global_norm::check(device, 513), &|| global_norm::check(device, 70_003)])
        }
        "adamw_update" => adamw::ALL.into_iter().try_for_each(|how| adamw::check(device, how)),
        "classifier_1" => classified([1, 2]),
        "classifier_16" => classified([3, 4]),
        "encoder_forward" => {
            encoder::masks().into_iter().try_for_each(|mask| encoder::forward(device, encoder::ALL[2], mask))
        }
        "encoder_backward_wpe" | "encoder_backward_wte_many" | "encoder_backward_wte_few" => encoded(),
        "layernorm_forward_1" => each(&[&|| forward((13, 72)), &|| forward((13, 776 - 8))]),
        "layernorm_forward_4" => each(&[&|| forward((7, 776)), &|| forward((4, 2056))]),
        "layernorm_forward_12" => each(&[&|| forward((2, 3080)), &|| forward((1, 9216))]),
        "residual_layernorm_forward_1" => each(&[&|| residual((13, 72)), &|| residual((13, 776 - 8))]),
        "residual_layernorm_forward_4" => each(&[&|| residual((7, 776)), &|| residual((4, 2056))]),
        "residual_layernorm_forward_12" => each(&[&|| residual((2, 3080)), &|| residual((1, 9216))]),
        "layernorm_backward_1" | "layernorm_backward_sum" => each(&[&|| backward((30, 72)), &|| backward((13, 768))]),
        "layernorm_backward_4" => each(&[&|| backward((13, 776)), &|| backward((7, 3072))]),
        "layernorm_backward_12" => each(&[&|| backward((4, 3080)), &|| backward((3, 9216))]),
        "matmul_forward" => matmul::forward_is_right(device, &BuiltinKernels, [129, 136, 264]),
        "matmul_gelu_forward" | "matmul_residual_forward" => {
            matmul::epilogues_are_right(device, &BuiltinKernels, [129, 136, 264])
        }
        "matmul_backward_inp" | "matmul_gelu_backward_inp" => {
            matmul::backward_inp_is_right(device, &BuiltinKernels, [129, 136, 264])
        }
        "matmul_backward_weight" | "bias_backward" | "sum_planes" => parameters(),
        other => panic!("nothing checks {other}"),
    }
}

/// The prefix of randomly chosen mutations; the modules of [`crate`] test the others.
const BY_CHANCE: &str = "line_";
/// The number of randomly chosen mutations.
const N_BY_CHANCE: usize = 131;

#[test]
fn every_listed_mistake_is_noticed() {
    let mutations: Vec<_> = mutations().iter().filter(|mutation| mutation.name.starts_with(BY_CHANCE)).collect();
    let unnoticed: Vec<String> = mutations
        .iter()
        .filter(|mutation| !is_noticed(&mutation.entry, &mutation.name, |device| check(&mutation.entry, device)))
        .map(|mutation| format!("{} {}", mutation.entry, mutation.name))
        .collect();
    assert_eq!(unnoticed, [""; 0], "of {} mistakes", mutations.len());
    assert_eq!(mutations.len(), N_BY_CHANCE);
}
