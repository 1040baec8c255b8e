//! The README's example, and runs that the built-in trainer does not support.

use super::*;
use crate::{
    gpt::buffers::cuda::CudaTraining,
    nanogpt::Source,
    plan::plan,
    report::builtin_node,
    session::{Options, resolve},
};
use headroom_languages::english;

fn request(settings: &str, options: &Options) -> Request {
    let source = Source::File { name: "config.py".to_owned(), text: settings.to_owned() };
    resolve(&[source], options).request.expect("a run")
}

/// GPT-2 124M at 64 x 1024 in bfloat16 runs out of memory in PyTorch on a 12 GB GPU, but fits in the built-in trainer.
#[test]
fn the_headline_fits_where_pytorch_fails() {
    let request = request("batch_size = 64\ngradient_accumulation_steps = 1\n", &Options::default());
    assert_eq!(&*request.machine.device.name, "GeForce RTX 4070");
    let planned = plan(request.clone()).expect("small");
    assert!(!planned.fits && planned.peak.max_allocated_bytes > 3 * request.machine.device.total_bytes);
    let found = builtin(&request).expect("it can");
    assert!(found.fits && found.headroom_bytes >= 0);
    assert!(found.device_used_bytes + RESERVE_BYTES <= request.machine.device.total_bytes);
    let arena = CudaTraining::new(&request.gpt, 64, found.recompute.clone()).expect("small");
    assert_eq!(arena.bytes, found.allocated_bytes);
    let said = found.text(request.machine.device.total_bytes).to_string();
    assert!(
        said.starts_with("Headroom's own trainer fits this run: 11.") && said.contains("attention recomputed in"),
        "{said}"
    );
}

/// Memory of other processes is unavailable, and finally even the smallest arena does not fit.
#[test]
fn others_take_room_until_nothing_fits() {
    let mut before = u64::MAX;
    let mut fits = Vec::new();
    for others in 0..12 {
        let options = Options { other_processes_bytes: others << 30, ..Options::default() };
        let found = builtin(&request("batch_size = 64\n", &options)).expect("it can");
        assert!(found.allocated_bytes <= before);
        assert_eq!(found.fits, found.headroom_bytes >= 0);
        before = found.allocated_bytes;
        fits.push(found.fits);
    }
    assert!(fits[0] && !fits[11] && fits.is_sorted_by(|a, b| a >= b), "{fits:?}");
    let options = Options { other_processes_bytes: 11 << 30, ..Options::default() };
    let said = builtin(&request("batch_size = 64\n", &options)).expect("it can").text(0).to_string();
    assert!(
        said.starts_with("Headroom's own trainer does not fit this run: ") && said.ends_with("GiB short"),
        "{said}"
    );
}

#[test]
fn unsupported_configs_are_reported() {
    let on = |gpu: &str| Options { gpu: gpu.to_owned(), ..Options::default() };
    let two = Options { world_size: 2, ..Options::default() };
    for (settings, options, why) in [
        ("dtype = 'float32'", Options::default(), "bfloat16, not in float32"),
        ("n_head = 3", Options::default(), "n_embd / n_head in steps of 8 up to 128, and this is 256"),
        ("n_head = 64", Options::default(), "and this is 12"),
        ("n_embd = 12288\nn_head = 96", on("H200"), "n_embd in steps of 8 up to 9216, and this is 12288"),
        ("", on("RTX 2080 Ti"), "8.0 or later, and GeForce RTX 2080 Ti has 7.5"),
        ("gradient_accumulation_steps = 4", two, "without data parallelism"),
    ] {
        let request = request(settings, &options);
        let reason = builtin(&request).expect_err(settings).to_string();
        assert!(reason.contains(why), "{settings}: {reason}");
        let row = builtin_node(&request, english()).into_value();
        assert_eq!((&row["supported"], &row["fits"]), (&false.into(), &false.into()));
        assert_eq!(row["reason"], reason.as_str());
        assert!(row["allocated_bytes"].is_null() && row["headroom_bytes"].is_null());
    }
}

/// `headroom train` trains this config in bfloat16, with a note.
#[test]
fn float16_is_planned_as_the_bfloat16_that_is_trained() {
    let options = Options::default();
    let [half, brain] =
        ["float16", "bfloat16"].map(|dtype| builtin(&request(&format!("dtype = '{dtype}'"), &options)).expect(dtype));
    assert_eq!(half.allocated_bytes, brain.allocated_bytes);
    let (said, without) = (half.text(12 << 30).to_string(), brain.text(12 << 30).to_string());
    assert_eq!(said, format!("{without}; in bfloat16 instead of float16"));
}

#[test]
fn recompute_is_described_by_blocks() {
    use Recompute::{Attention, Block, GeluAndLayernorm, None};
    for (recompute, said) in [
        (vec![None; 3], "nothing recomputed"),
        (vec![GeluAndLayernorm, None, None], "GELU and layer norms recomputed in 1 of 3 blocks"),
        (vec![Attention; 3], "attention recomputed in 3 of 3 blocks"),
        (vec![Block, Block, Attention], "2 of 3 blocks recomputed, less in the others"),
    ] {
        assert_eq!(again(&recompute).to_string(), said);
    }
}
