//! `headroom export` compared with Hugging Face's library, whose logits are in `tests/golden/hf_export`.
//!
//! The weights come from a seed, so that the files here equal those that the library read. Checksums confirm this.
//! `HEADROOM_EXPORT_TO=FOLDER` leaves the files there, for the README's script.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Cursor,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use headroom_kernels::{
    layout::Layout,
    reference::gpt::{DropoutPass, Gpt},
    rng::Stream,
    weights::{self, Hints, NamingScheme, write_model},
};
use headroom_planner::gpt::{GptConfig, GptShape};
use serde_json::{Value, json};

/// Maximum absolute error of a logit.
const TOLERANCE: f64 = 1e-4;

const VOCABULARY: &str = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

fn config(bias: bool) -> GptConfig {
    let shape = GptShape { n_layer: 2, n_head: 3, n_embd: 24, block_size: 16, vocab_size: 65, dropout: 0.0, bias };
    GptConfig::new(shape).expect("a shape")
}

/// Weights that are large enough to affect every logit. A logit is of the order of 1.
fn params(config: &GptConfig) -> Vec<f32> {
    let mut stream = Stream::new(2024, 0);
    let layout = Layout::new(config).expect("small");
    let of_entry = |entry: &headroom_kernels::layout::Entry| {
        let mean = if entry.name.contains("ln_") && entry.name.ends_with("weight") { 1.0 } else { 0.0 };
        #[expect(clippy::cast_possible_truncation, reason = "weights are f32")]
        let values: Vec<f32> = entry.range.clone().map(|_| (mean + 0.3 * stream.normal()) as f32).collect();
        values
    };
    layout.entries().iter().flat_map(of_entry).collect()
}

fn golden() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/hf_export/logits.json");
    serde_json::from_str(&fs::read_to_string(file).expect("the golden file")).expect("JSON")
}

fn headroom(args: &[&str]) -> Output {
    let program = env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    Command::new(program).args(args).stdin(Stdio::null()).output().expect("headroom runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Writes a model under nanoGPT's names, with the metadata of a Headroom run.
fn source(dir: &Path, config: &GptConfig) -> PathBuf {
    let metadata = BTreeMap::from([
        ("headroom".to_owned(), "1".to_owned()),
        ("model_args".to_owned(), json!(config).to_string()),
        ("tokenizer".to_owned(), json!({ "char": VOCABULARY }).to_string()),
    ]);
    let mut file = Vec::new();
    write_model(&mut file, config, &params(config), NamingScheme::NanoGpt, &metadata)
        .expect("writing to memory cannot fail");
    let path = dir.join("source.safetensors");
    fs::write(&path, file).expect("space");
    path
}

fn exported(dir: &Path, config: &GptConfig, format: &str) -> PathBuf {
    let source = source(dir, config);
    let out = dir.join(format);
    let path = |path: &Path| path.display().to_string();
    let output = headroom(&["export", "--ckpt", &path(&source), "--format", format, "--out", &path(&out)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    out
}

#[test]
fn logits_are_those_of_hugging_faces_library() {
    let golden = golden();
    for (name, bias) in [("with_bias", true), ("without_bias", false)] {
        let (dir, config) = (tempfile::tempdir().expect("a folder"), config(bias));
        let kept = env::var_os("HEADROOM_EXPORT_TO").map(|folder| PathBuf::from(folder).join(name));
        let dir = kept.as_deref().unwrap_or(dir.path());
        fs::create_dir_all(dir).expect("a folder");
        let out = exported(dir, &config, "hf");
        if kept.is_some() {
            continue;
        }
        let golden = &golden["models"][name];
        for file in ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"] {
            let sum = crc32fast::hash(&fs::read(out.join(file)).expect("a file"));
            assert_eq!(golden["crc32"][file], sum, "{name}: {file} is not the one that was loaded there");
        }
        let ids = |text: &str| text.chars().map(|char| VOCABULARY.find(char)).collect::<Option<Vec<_>>>();
        let by_its_tokenizer: Vec<usize> = serde_json::from_value(golden["text_tokens"].clone()).expect("tokens");
        assert_eq!(Some(by_its_tokenizer), ids("First Citizen:\nBefore we proceed"));
        let tokens: Vec<u32> = serde_json::from_value(golden["tokens"].clone()).expect("tokens");
        let expected: Vec<f64> = serde_json::from_value(golden["logits"].clone()).expect("logits");
        let gpt = Gpt::new(&config, tokens.len()).expect("small");
        let found = gpt.forward(&params(&config), &tokens, &tokens, DropoutPass::NONE).logits;
        assert_eq!(found.len(), expected.len());
        let worst = found.iter().zip(&expected).map(|(&found, &expected)| (f64::from(found) - expected).abs());
        // A NaN replaces the worst error, because no comparison with it is true.
        let worst = worst.fold(0.0, |worst: f64, off| if off <= worst { worst } else { off });
        assert!(worst <= TOLERANCE, "{name}: off by {worst}");
        let spread = expected.iter().fold(0.0, |most: f64, logit| most.max(logit.abs()));
        assert!(spread > 1.0, "logits within {spread} would agree even if wrong");
        println!("{name}: off by {worst:.1e} at most, of logits up to {spread:.1}");
    }
}

#[test]
fn nanogpts_names_can_be_exported_and_exported_again() {
    let (dir, config) = (tempfile::tempdir().expect("a folder"), config(false));
    let out = exported(dir.path(), &config, "nanogpt");
    let again = dir.path().join("again");
    let args = ["export", "--ckpt", &out.display().to_string(), "--out", &again.display().to_string()];
    let output = headroom(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let hf = exported(dir.path(), &config, "hf");
    for file in ["model.safetensors", "config.json", "tokenizer.json"] {
        let read = |dir: &Path| fs::read(dir.join(file)).expect("a file");
        assert!(read(&again) == read(&hf), "{file}");
    }
    assert_eq!(text(&output.stdout).lines().count(), 4, "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("GPT2LMHeadModel.from_pretrained("), "{}", text(&output.stderr));
}

#[test]
fn half_precision_is_half_the_size_and_the_nearest_numbers() {
    let (dir, config) = (tempfile::tempdir().expect("a folder"), config(true));
    source(dir.path(), &config);
    let source = dir.path().join("source.safetensors").display().to_string();
    for format in ["hf", "nanogpt"] {
        let [half, again] = ["half", "again"].map(|name| dir.path().join(format!("{name}-{format}")));
        let args = |ckpt: &str, dtype: &str, out: &Path| {
            ["export", "--ckpt", ckpt, "--format", format, "--dtype", dtype, "--out", &out.display().to_string()]
                .map(str::to_owned)
        };
        for args in [args(&source, "float16", &half), args(&half.display().to_string(), "float32", &again)] {
            let output = headroom(&args.each_ref().map(String::as_str));
            assert!(output.status.success(), "{}", text(&output.stderr));
        }
        let read = |dir: &Path| fs::read(dir.join("model.safetensors")).expect("a file");
        let load = |bytes: &[u8]| weights::load(&mut Cursor::new(bytes), &Hints::with_heads(3)).expect("a model");
        let (in_half, in_single) = (load(&read(&half)), load(&read(&again)));
        assert!(in_half.1 == in_single.1, "{format}: rounding twice changes nothing");
        let whole = params(&config);
        let worst = in_half.1.iter().zip(&whole).map(|(half, full)| (half - full).abs() / full.abs().max(1e-4));
        let worst = worst.fold(0.0, f32::max);
        assert!(worst > 0.0 && worst <= 1.0 / 2048.0, "{format}: off by {worst} of a weight");
        assert!(read(&half).len() * 10 < read(&again).len() * 6, "{format}");
    }
}

#[test]
fn nothing_is_overwritten_and_errors_say_what_to_do() {
    let (dir, config) = (tempfile::tempdir().expect("a folder"), config(true));
    let out = exported(dir.path(), &config, "hf");
    let path = |name: &str| dir.path().join(name).display().to_string();
    fs::write(dir.path().join("cut.safetensors"), &fs::read(path("source.safetensors")).expect("a file")[..9000])
        .expect("space");
    fs::create_dir(dir.path().join("empty")).expect("a folder");
    let (source, out) = (path("source.safetensors"), out.display().to_string());
    for (args, status, says, hint) in [
        (&["--ckpt", &source, "--out", &out][..], 1, "it exists already", "nothing is overwritten"),
        (&["--ckpt", &path("cut.safetensors"), "--out", &path("x")], 1, "ends at byte", "download or copy"),
        (&["--ckpt", &path("empty"), "--out", &path("x")], 3, "has neither ckpt.safetensors nor", "out_dir"),
        (&["--ckpt", &path("gone"), "--out", &path("x")], 3, "cannot read ", ""),
        (&["--ckpt", &source], 2, "export needs --out FOLDER, the folder to write", "headroom export --help"),
        (&["--out", &out], 2, "export needs --ckpt FOLDER, the folder of a run", "headroom export --help"),
        (&["--ckpt", &source, "--out", &out, "--format", "pt"], 2, "is not one of hf, nanogpt, ckpt.pt", ""),
        (&["--ckpt", &source, "--out", &out, "--dtype", "int4"], 2, "is not one of float32, float16", ""),
        (&["--ckpt", &source, "--outs", &out], 2, "export has no option --outs", "--out"),
        (&["ckpt"], 2, "export takes no \"ckpt\"", "headroom export --help"),
    ] {
        let output = headroom(&[&["export"], args].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?} {stderr}");
        assert!(stderr.contains(says) && stderr.contains(hint), "{args:?} {stderr}");
        assert!(output.stdout.is_empty());
    }
    assert!(!dir.path().join("x").exists());
}

#[cfg(unix)]
#[test]
fn full_disk_has_one_error() {
    let (dir, config) = (tempfile::tempdir().expect("a folder"), config(true));
    exported(dir.path(), &config, "hf");
    let program = env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    for (format, file) in [("ckpt.pt", "ckpt.pt"), ("hf", "model.safetensors"), ("nanogpt", "model.safetensors")] {
        let out = format!("full-{format}");
        // The files have more than 10 KB. A signal that is ignored becomes an error of the write.
        let output = Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$@\"", "sh"])
            .arg(&program)
            .args(["export", "--ckpt", "source.safetensors", "--out", &out, "--format", format])
            .current_dir(dir.path())
            .output()
            .expect("sh runs");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        let expected =
            format!("headroom: cannot write {out}/{file}: File too large (os error 27)\n\nhint: the disk is full\n");
        assert_eq!(stderr, expected);
        assert!(!dir.path().join(&out).join(file).exists(), "{format}");
    }
}
