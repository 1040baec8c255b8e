//! Writer of nanoGPT's `ckpt.pt` in the form of its train.py: train.py resumes from it, and sample.py loads it.

use std::io::{self, Seek, SeekFrom, Write};

use headroom_kernels::{layout::Layout, weights::write_f32};
use headroom_planner::gpt::GptConfig;
use serde_json::{Map, Value as Json};
use zip::{CompressionMethod, ZipWriter, result::ZipError, write::SimpleFileOptions};

use crate::checkpoint::Checkpoint;

/// The name of nanoGPT's checkpoint.
pub const FILE: &str = "ckpt.pt";
/// The directory within the archive.
const FOLDER: &str = "ckpt";
/// Alignment of a tensor's elements in bytes, so that PyTorch can map them.
const ALIGNMENT: u16 = 64;

/// Writes a run's checkpoint. The learning rate and the other settings of AdamW come from its config, or are nanoGPT's
/// defaults.
///
/// # Errors
/// The file cannot be written.
///
/// # Panics
/// If the tensors do not have the layout's length.
pub fn write(out: &mut (impl Write + Seek), checkpoint: &Checkpoint) -> io::Result<()> {
    let layout = Layout::new(&checkpoint.meta.gpt).map_err(io::Error::other)?;
    let mut pickle = Pickler { bytes: vec![0x80, 2], storages: Vec::new() };
    pickle.checkpoint(checkpoint, &layout);
    let mut out = UntilError::new(out)?;
    let mut zip = ZipWriter::new(&mut out);
    let file = |zip: &mut ZipWriter<_>, name: &str| {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        let options = options.large_file(true).with_alignment(ALIGNMENT);
        zip.start_file(format!("{FOLDER}/{name}"), options).map_err(of_zip)
    };
    file(&mut zip, "data.pkl")?;
    zip.write_all(&pickle.bytes)?;
    file(&mut zip, "byteorder")?;
    zip.write_all(b"little")?;
    for (key, storage) in pickle.storages.iter().enumerate() {
        file(&mut zip, &format!("data/{key}"))?;
        write_f32(&mut zip, storage)?;
    }
    file(&mut zip, "version")?;
    zip.write_all(b"3\n")?;
    zip.finish().map_err(of_zip)?;
    Ok(())
}

/// A file up to its first error, and after it a file that accepts everything and stores nothing. A dropped `ZipWriter`
/// completes its archive, and would print a second error to standard error.
struct UntilError<'a, W> {
    file: &'a mut W,
    has_failed: bool,
    /// Position and length, which go on without the file.
    at: u64,
    length: u64,
}

impl<'a, W: Write + Seek> UntilError<'a, W> {
    fn new(file: &'a mut W) -> io::Result<Self> {
        let at = file.stream_position()?;
        Ok(Self { file, has_failed: false, at, length: at })
    }

    fn noted<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        self.has_failed = done.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        done
    }
}

impl<W: Write + Seek> Write for UntilError<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = if self.has_failed {
            bytes.len()
        } else {
            let written = self.file.write(bytes);
            self.noted(written)?
        };
        self.at += n as u64;
        self.length = self.length.max(self.at);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.has_failed {
            return Ok(());
        }
        let flushed = self.file.flush();
        self.noted(flushed)
    }
}

impl<W: Write + Seek> Seek for UntilError<'_, W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = if self.has_failed {
            let at = match to {
                SeekFrom::Start(at) => Some(at),
                SeekFrom::End(by) => self.length.checked_add_signed(by),
                SeekFrom::Current(by) => self.at.checked_add_signed(by),
            };
            at.ok_or(io::ErrorKind::InvalidInput)?
        } else {
            let sought = self.file.seek(to);
            self.noted(sought)?
        };
        Ok(self.at)
    }
}

fn of_zip(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        error => io::Error::other(error),
    }
}

/// A pickle of protocol 2, and the storages that it refers to by index.
struct Pickler<'a> {
    bytes: Vec<u8>,
    storages: Vec<std::borrow::Cow<'a, [f32]>>,
}

impl<'a> Pickler<'a> {
    fn checkpoint(&mut self, checkpoint: &'a Checkpoint, layout: &Layout) {
        let Checkpoint { meta, params, exp_avg, exp_avg_sq } = checkpoint;
        self.open_dict();
        self.text("model");
        self.global("collections", "OrderedDict");
        self.bytes.extend(b")R(");
        for entry in layout.entries() {
            let key = self.storage(&params[entry.range.clone()]);
            self.text(&entry.name);
            self.tensor(key, &entry.shape);
            if entry.name == "transformer.wte.weight" {
                self.text("lm_head.weight");
                self.tensor(key, &entry.shape);
            }
        }
        self.bytes.push(b'u');
        self.text("optimizer");
        self.open_dict();
        self.text("state");
        self.open_dict();
        let (decays, rest): (Vec<_>, Vec<_>) = layout.entries().iter().partition(|entry| entry.shape.len() >= 2);
        let n_decays = decays.len();
        // AdamW has no state before its first step.
        let n_states = if meta.state.optimizer_step == 0 { 0 } else { layout.entries().len() };
        for (at, entry) in decays.into_iter().chain(rest).enumerate().take(n_states) {
            self.int(at as u64);
            self.open_dict();
            self.text("step");
            // Each parameter has a storage of its own, because PyTorch increments the step in place.
            let step = self.storage_of(vec![meta.state.optimizer_step as f32]);
            self.tensor(step, &[]);
            for (name, moments) in [("exp_avg", exp_avg), ("exp_avg_sq", exp_avg_sq)] {
                self.text(name);
                let key = self.storage(&moments[entry.range.clone()]);
                self.tensor(key, &entry.shape);
            }
            self.close_dict();
        }
        self.close_dict();
        self.text("param_groups");
        self.bytes.extend(b"](");
        let n = layout.entries().len();
        self.group(&meta.config, true, 0..n_decays);
        self.group(&meta.config, false, n_decays..n);
        self.bytes.push(b'e');
        self.close_dict();
        self.text("model_args");
        self.model_args(&meta.gpt);
        self.text("iter_num");
        self.int(meta.state.iter_num);
        self.text("best_val_loss");
        self.float(meta.state.best_val_loss.unwrap_or(1e9));
        self.text("config");
        self.config(&meta.config);
        self.close_dict();
        self.bytes.push(b'.');
    }

    /// Writes a group of AdamW's parameters with the settings that PyTorch keeps there.
    fn group(&mut self, config: &Map<String, Json>, decays: bool, ids: std::ops::Range<usize>) {
        let number = |key: &str, default: f64| config.get(key).and_then(Json::as_f64).unwrap_or(default);
        self.open_dict();
        self.text("weight_decay");
        self.float(if decays { number("weight_decay", 0.1) } else { 0.0 });
        self.text("lr");
        self.float(number("learning_rate", 6e-4));
        self.text("betas");
        self.float(number("beta1", 0.9));
        self.float(number("beta2", 0.95));
        self.bytes.push(0x86);
        self.text("eps");
        self.float(1e-8);
        for (name, opcode) in [
            ("amsgrad", 0x89),
            ("foreach", b'N'),
            ("maximize", 0x89),
            ("capturable", 0x89),
            ("differentiable", 0x89),
            ("fused", b'N'),
        ] {
            self.text(name);
            self.bytes.push(opcode);
        }
        self.text("params");
        self.bytes.extend(b"](");
        for id in ids {
            self.int(id as u64);
        }
        self.bytes.push(b'e');
        self.close_dict();
    }

    fn model_args(&mut self, gpt: &GptConfig) {
        self.open_dict();
        for (name, value) in [
            ("n_layer", gpt.n_layer()),
            ("n_head", gpt.n_head()),
            ("n_embd", gpt.n_embd()),
            ("block_size", gpt.block_size()),
            ("vocab_size", gpt.vocab_size()),
        ] {
            self.text(name);
            self.int(value);
        }
        self.text("bias");
        self.bool(gpt.bias());
        self.text("dropout");
        self.float(gpt.dropout());
        self.close_dict();
    }

    fn config(&mut self, config: &Map<String, Json>) {
        self.open_dict();
        for (key, value) in config {
            match value {
                Json::Bool(value) => {
                    self.text(key);
                    self.bool(*value);
                }
                Json::Number(number) => {
                    self.text(key);
                    match number.as_u64() {
                        Some(value) => self.int(value),
                        None => self.float(number.as_f64().unwrap_or_default()),
                    }
                }
                Json::String(value) => {
                    self.text(key);
                    self.text(value);
                }
                Json::Null | Json::Array(_) | Json::Object(_) => {}
            }
        }
        self.close_dict();
    }

    fn open_dict(&mut self) {
        self.bytes.extend(b"}(");
    }

    fn close_dict(&mut self) {
        self.bytes.push(b'u');
    }

    fn bool(&mut self, value: bool) {
        self.bytes.push(if value { 0x88 } else { 0x89 });
    }

    fn int(&mut self, value: u64) {
        match i32::try_from(value) {
            Ok(value) => {
                self.bytes.push(b'J');
                self.bytes.extend(value.to_le_bytes());
            }
            Err(_) => {
                // One byte more than the number, so that its sign is positive.
                self.bytes.extend([0x8a, 9]);
                self.bytes.extend(value.to_le_bytes());
                self.bytes.push(0);
            }
        }
    }

    fn float(&mut self, value: f64) {
        self.bytes.push(b'G');
        self.bytes.extend(value.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.bytes.push(b'X');
        self.bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    fn global(&mut self, module: &str, name: &str) {
        self.bytes.extend(format!("c{module}\n{name}\n").as_bytes());
    }

    fn storage(&mut self, values: &'a [f32]) -> usize {
        self.storages.push(values.into());
        self.storages.len() - 1
    }

    fn storage_of(&mut self, values: Vec<f32>) -> usize {
        self.storages.push(values.into());
        self.storages.len() - 1
    }

    /// Writes a contiguous tensor that covers a whole storage.
    fn tensor(&mut self, key: usize, shape: &[usize]) {
        let elements: usize = shape.iter().product();
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.bytes.extend(b"((");
        self.text("storage");
        self.global("torch", "FloatStorage");
        self.text(&key.to_string());
        self.text("cpu");
        self.int(elements as u64);
        self.bytes.extend(b"tQ");
        self.int(0);
        self.bytes.push(b'(');
        for axis in shape {
            self.int(*axis as u64);
        }
        self.bytes.extend(b"t(");
        for at in 0..shape.len() {
            self.int(shape[at + 1..].iter().product::<usize>() as u64);
        }
        self.bytes.extend([b't', 0x89]);
        self.global("collections", "OrderedDict");
        self.bytes.extend(b")RtR");
    }
}
