// Epilogues of a linear layer; twins are `gelu_forward`, `gelu_tanh_forward` and `residual_forward`.

// 0 for none, 1 for GELU, 2 for GELU's tanh form, 3 for adding the old value.
override AFTER: u32 = 0u;

// Error function, to 1.5e-7 (Abramowitz and Stegun 1964, 7.1.26).
fn erf(x: f32) -> f32 {
    let a = abs(x);
    let t = 1.0 / (1.0 + 0.3275911 * a);
    let poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    let y = 1.0 - poly * exp(-a * a);
    return select(y, -y, x < 0.0);
}

// GELU: x * Phi(x).
fn gelu(x: f32) -> f32 {
    return 0.5 * x * (1.0 + erf(x * 0.70710678));
}

// GELU's tanh form. Tanh is written out, as it overflows on some devices; beyond 10 it is 1 to the last bit.
fn gelu_tanh(x: f32) -> f32 {
    let y = clamp(0.79788456 * (x + 0.044715 * x * x * x), -10.0, 10.0);
    let e = exp(2.0 * y);
    return 0.5 * x * (1.0 + (e - 1.0) / (e + 1.0));
}

// Applies the epilogue to the result of a linear layer, given the old value.
fn after(y: f32, there: f32) -> f32 {
    if AFTER == 1u {
        return gelu(y);
    }
    if AFTER == 2u {
        return gelu_tanh(y);
    }
    if AFTER == 3u {
        return there + y;
    }
    return y;
}
