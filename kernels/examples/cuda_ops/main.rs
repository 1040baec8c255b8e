//! Benchmark of the CUDA ops: `cargo run --release -p headroom-kernels --features cuda --example cuda_ops -- [OP...]
//! [--rows N] [--parameters N]`.
//!
//! Prints a JSON line per op: the bytes that it must move, the media GPU time, and the bandwidth relative to a copy in
//! the same run. Lines of products and attention also have the number of operations. `cargo xtask gpu` compares those
//! with the fastest known product on the GPU.
//!
//! Sizes are GPT-2's, with 64 sequences of 1,024 tokens and 124M parameters. Their tensors exceed the L2 cache of most
//! GPUs, so no op finds its inputs there. `--tiny` selects sizes that the emulated GPU computes in seconds, for testing
//! the benchmark itself. Without a GPU it prints a message and exits.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its results")]

mod gemm;

use std::error::Error;

use headroom_kernels::{
    bench::is_meant,
    cuda::{
        Allocation, Bf16, CudaError, Device, Element, Slice,
        ops::{
            adamw_update::{Clip, Parameter, Rounding, Table, adamw_update},
            classifier::classifier,
            dropout::dropout,
            encoder_backward::{self, TokenOrder, encoder_backward},
            encoder_forward::encoder_forward,
            gelu::{gelu_backward, gelu_forward},
            global_norm::{N_SUMS, global_norm},
            layernorm_backward::{self, layernorm_backward, sums_elements},
            layernorm_forward::{Output, Residual, layernorm_forward, residual_layernorm_forward},
            losses::losses_sum,
        },
    },
    reference::{adamw_update::AdamW, dropout::Dropout, encoder::Positions},
    rng::Stream,
};
use serde_json::json;

/// Dimensions of the model, and amount of measurement.
#[derive(Clone, Copy)]
struct Sizes {
    c: u64,
    heads: u64,
    t: u64,
    v: u64,
    padded_v: u64,
    rows: u64,
    parameters: u64,
    /// Number of timed runs, after the warm-up runs; the median counts.
    runs: usize,
    warm_up_runs: usize,
}

const GPT2: Sizes = Sizes {
    c: 768,
    heads: 12,
    t: 1024,
    v: 50_257,
    padded_v: 50_304,
    rows: 64 * 1024,
    parameters: 124_475_904,
    runs: 20,
    warm_up_runs: 3,
};
const TINY: Sizes =
    Sizes { c: 64, heads: 2, t: 32, v: 67, padded_v: 72, rows: 64, parameters: 4096, runs: 1, warm_up_runs: 0 };
/// Maximum number of rows of the classifier's chunk: 824 MB of logits.
const CHUNK_ROWS: u64 = 8192;

/// The selected ops and their sizes.
struct Bench {
    device: Device,
    named: Vec<String>,
    sizes: Sizes,
    /// Bandwidth of a copy in GB/s, reads and writes added.
    copy: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut sizes = if words.iter().any(|word| word == "--tiny") { TINY } else { GPT2 };
    words.retain(|word| word != "--tiny");
    let (mut words, mut named) = (words.into_iter(), Vec::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--rows" => {
                let rows: u64 = words.next().ok_or("--rows needs a number")?.parse()?;
                sizes.rows = rows.next_multiple_of(sizes.t);
            }
            "--parameters" => {
                sizes.parameters = words.next().ok_or("--parameters needs a number")?.parse::<u64>()? / 8 * 8;
            }
            _ => named.push(word),
        }
    }
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("nothing is measured: {error}");
            return Ok(());
        }
    };
    let mut bench = Bench { device, named, sizes, copy: f64::NAN };
    bench.copy()?;
    bench.rows_by_eights()?;
    bench.encoder()?;
    bench.layernorm()?;
    bench.classifier()?;
    bench.optimizer()?;
    bench.gemm()?;
    bench.attention()?;
    Ok(())
}

impl Bench {
    /// Median time of the runs in milliseconds.
    fn median_millis(&self, mut run: impl FnMut() -> Result<(), CudaError>) -> Result<f64, CudaError> {
        for _ in 0..self.sizes.warm_up_runs {
            run()?;
        }
        let mut millis = Vec::with_capacity(self.sizes.runs);
        for _ in 0..self.sizes.runs {
            millis.push(f64::from(self.device.millis(&mut run)?));
        }
        millis.sort_by(f64::total_cmp);
        Ok(millis[self.sizes.runs / 2])
    }

    /// Measures a memory-bound op.
    fn tell(&self, op: &str, bytes: u64, run: impl FnMut() -> Result<(), CudaError>) -> Result<(), CudaError> {
        self.tell_work(op, bytes, None, run)
    }

    fn tell_work(
        &self,
        op: &str,
        bytes: u64,
        operations: Option<u64>,
        run: impl FnMut() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        if !is_meant(&format!("cuda {op}"), &self.named) {
            return Ok(());
        }
        let millis = self.median_millis(run)?;
        let bandwidth = bytes as f64 / millis / 1e6;
        println!(
            "{}",
            json!({
                "card": self.device.gpu().name, "op": op, "rows": self.sizes.rows, "bytes": bytes, "ms": millis,
                "gb_per_s": bandwidth, "of_copy": bandwidth / self.copy, "operations": operations,
                "operations_per_second": operations.map(|n| n as f64 / millis * 1e3),
            })
        );
        Ok(())
    }

    fn zeros<E: Element>(&self, n: u64) -> Result<Allocation<E>, CudaError> {
        let zeros = self.device.allocate(n)?;
        self.device.zero(zeros.slice())?;
        Ok(zeros)
    }

    /// Random numbers, repeated in pieces: a GPU multiplies zeros faster than a model's values.
    fn random(&self, n: u64) -> Result<Allocation<Bf16>, CudaError> {
        /// Not a divisor of any row length, so that rows differ.
        const PIECE: usize = 65_537;
        let mut stream = Stream::new(1, 2);
        #[expect(clippy::cast_possible_truncation, reason = "random numbers in the type of inputs")]
        let piece: Vec<Bf16> = (0..PIECE).map(|_| Bf16::from_f32(stream.normal() as f32)).collect();
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        self.device.upload(&piece.iter().copied().cycle().take(n).collect::<Vec<_>>())
    }

    /// A tensor of the residual stream's size.
    fn stream(&self) -> Result<Allocation<Bf16>, CudaError> {
        self.random(self.sizes.rows * self.sizes.c)
    }

    fn copy(&mut self) -> Result<(), CudaError> {
        let n = self.sizes.rows * self.sizes.c * 4;
        let (from, to) = (self.random(n)?, self.zeros(n)?);
        let millis = self.median_millis(|| self.device.copy(to.slice(), from.slice()))?;
        self.copy = 2.0 * from.slice().bytes() as f64 / millis / 1e6;
        println!("{}", json!({ "card": self.device.gpu().name, "op": "copy", "ms": millis, "gb_per_s": self.copy }));
        Ok(())
    }

    fn rows_by_eights(&self) -> Result<(), CudaError> {
        let [out, inp, dout] = [self.stream(), self.stream(), self.stream()];
        let (out, inp, dout) = (out?, inp?, dout?);
        let (out, inp, dout) = (out.slice(), inp.slice(), dout.slice());
        let n = inp.len();
        self.tell("gelu_forward", 4 * n, || gelu_forward(&self.device, out, inp))?;
        self.tell("gelu_backward", 6 * n, || gelu_backward(&self.device, out, dout, inp))?;
        let Some(mask) = Dropout::new(0.1, 1) else { return Ok(()) };
        self.tell("dropout", 4 * n, || dropout(&self.device, out, inp, mask))
    }

    fn tokens(&self) -> Vec<u32> {
        // The k-th most frequent token has a frequency of about 1 / k, as in text.
        let (mut stream, v) = (Stream::new(1, 1), self.sizes.v);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to below V")]
        let token = |uniform: f64| ((v as f64).powf(uniform) - 1.0) as u32;
        (0..self.sizes.rows).map(|_| token(stream.uniform())).collect()
    }

    fn encoder(&self) -> Result<(), CudaError> {
        let (device, Sizes { c, t, v, rows, .. }) = (&self.device, self.sizes);
        let positions = Positions { t: usize::try_from(t).unwrap_or(usize::MAX), first: 0 };
        let (tokens, mut order) = (self.tokens(), TokenOrder::new(v)?);
        order.sort(&tokens)?;
        let n_different = order.n_different();
        let (inp, words, stream) = (device.upload(&tokens)?, device.upload(order.words())?, self.stream()?);
        let (wte, wpe) = (self.random(v * c)?, self.random(t * c)?);
        let n = rows * c;
        self.tell("encoder_forward", 4 * n, || {
            encoder_forward(device, stream.slice(), inp.slice(), wte.slice(), wpe.slice(), positions, c, None)
        })?;
        let (dwte, dwpe) = (self.zeros(v * c)?, self.zeros(t * c)?);
        let gradients = encoder_backward::Gradients { dwte: dwte.slice(), dwpe: dwpe.slice() };
        self.tell("encoder_backward", 4 * n + 8 * (t + n_different) * c, || {
            encoder_backward(device, gradients, stream.slice(), (&order, words.slice()), positions, c, None)
        })
    }

    fn layernorm(&self) -> Result<(), CudaError> {
        let (device, Sizes { c, rows, .. }) = (&self.device, self.sizes);
        let [inp, branch, out, residual] = [self.stream(), self.stream(), self.stream(), self.stream()];
        let (inp, branch, out, residual) = (inp?, branch?, out?, residual?);
        let (inp, branch, out, residual) = (inp.slice(), branch.slice(), out.slice(), residual.slice());
        let (weight, mean, rstd) = (self.random(c)?, self.zeros(rows)?, self.zeros(rows)?);
        let (weight, mean, rstd): (Slice<Bf16>, _, _) = (weight.slice(), mean.slice(), rstd.slice());
        let (output, n) = (Output { out, mean, rstd }, rows * c);
        self.tell("layernorm_forward", 4 * n, || layernorm_forward(device, output, inp, weight, Some(weight)))?;
        let stream = Residual { residual, inp, branch, dropout: None };
        self.tell("residual_layernorm_forward", 8 * n, || {
            residual_layernorm_forward(device, stream, output, weight, Some(weight))
        })?;
        let (dweight, dbias, sums) = (self.zeros(c)?, self.zeros(c)?, device.allocate(sums_elements(rows, c)?)?);
        let (dweight, dbias) = (dweight.slice(), Some(dbias.slice()));
        let gradients = layernorm_backward::Gradients { dinp: residual, dweight, dbias, accumulate: true };
        let saved = layernorm_backward::SavedNorm { inp, mean, rstd };
        self.tell("layernorm_backward", 8 * n, || {
            layernorm_backward(device, gradients, sums.slice(), branch, saved, weight)
        })
    }

    fn classifier(&self) -> Result<(), CudaError> {
        let (device, Sizes { v, padded_v, .. }) = (&self.device, self.sizes);
        let rows = self.sizes.rows.min(CHUNK_ROWS);
        let (logits, targets) = (self.random(rows * padded_v)?, self.zeros(rows)?);
        let (logits, targets) = (logits.slice(), targets.slice());
        let (losses, sum) = (self.zeros(rows)?, self.zeros(1)?);
        let losses = losses.slice();
        let n = rows * padded_v;
        self.tell("classifier_loss", 2 * n, || classifier(device, losses, logits, targets, v, None))?;
        // The second read of the logits hits the L2 cache.
        self.tell("classifier", 4 * n, || classifier(device, losses, logits, targets, v, Some(1e-4)))?;
        self.tell("losses_sum", 4 * rows, || losses_sum(device, sum.slice(), losses, 1e-4, false))
    }

    fn optimizer(&self) -> Result<(), CudaError> {
        let (device, n) = (&self.device, self.sizes.parameters);
        let [master, m, v, grad] = [self.zeros::<f32>(n), self.zeros(n), self.zeros(n), self.zeros(n)];
        let (weight, master, m, v, grad) = (self.zeros::<Bf16>(n)?, master?, m?, v?, grad?);
        let (norm, sums) = (self.zeros(1)?, device.allocate(N_SUMS)?);
        let (norm, grad) = (norm.slice(), grad.slice());
        self.tell("global_norm", 4 * n, || global_norm(device, norm, sums.slice(), grad))?;
        let (weight, master) = (weight.slice(), Some(master.slice()));
        let table = Table::new(&[Parameter { weight, master, m: m.slice(), v: v.slice(), grad, decayed: true }])?;
        let words = device.upload(table.words())?;
        let (clip, mut step) = (Some(Clip { norm, grad_clip: 1.0 }), 0);
        for (op, stochastic) in [("adamw_update", false), ("adamw_update_stochastic", true)] {
            self.tell(op, 30 * n, || {
                step += 1;
                let rounding = if stochastic { Rounding::Stochastic { key: 1 } } else { Rounding::Nearest };
                adamw_update(device, (&table, words.slice()), clip, adamw(step), rounding)
            })?;
        }
        Ok(())
    }
}

fn adamw(step: u64) -> AdamW {
    let eps = AdamW::EPS;
    AdamW { learning_rate: 6e-4, beta1: 0.9, beta2: 0.95, eps, weight_decay: 0.1, step, gradient_scale: 1.0 }
}
