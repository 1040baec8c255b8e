//! Tests of recordings: their decoder, their program on a GPU, and hostile files.

use super::*;
use crate::{
    hardware::find,
    memory::{
        allocator::SegmentKind, context::GpuProperties, message::TorchVersion, program::Program, simulate::simulate,
    },
    session::Options,
};

/// Writer of small files.
pub(super) struct File(Vec<u8>);

impl File {
    pub(in crate::recording) fn new() -> Self {
        Self::of_version(1)
    }

    pub(in crate::recording) fn of_version(version: u64) -> Self {
        let mut file = Self(MAGIC.to_vec());
        file.numbers(&[version]);
        file.text("2.11.0").text("train.py");
        file.numbers(&[8, 9, 2]);
        file
    }

    fn numbers(&mut self, numbers: &[u64]) -> &mut Self {
        for &number in numbers {
            let mut rest = number;
            while rest > 0x7f {
                self.0.push((rest & 0x7f) as u8 | 0x80);
                rest >>= 7;
            }
            self.0.push((rest & 0x7f) as u8);
        }
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.numbers(&[text.len() as u64]);
        self.0.extend(text.as_bytes());
        self
    }

    pub(in crate::recording) fn control(&mut self, kind: u64, numbers: &[u64]) -> &mut Self {
        self.numbers(&[kind << 2 | 3]).numbers(numbers)
    }

    pub(in crate::recording) fn defined(&mut self, text: &str) -> &mut Self {
        self.control(1, &[]).text(text)
    }

    /// Defines a float32 tensor of a role with these texts.
    pub(in crate::recording) fn label(&mut self, texts: [u64; 3], role: u64, elements: u64) -> &mut Self {
        self.control(2, &texts).numbers(&[role, 0, 4 * elements, 1, elements])
    }

    pub(in crate::recording) fn alloc(&mut self, label: u64) -> &mut Self {
        self.numbers(&[label << 2])
    }

    pub(in crate::recording) fn free(&mut self, distance: u64) -> &mut Self {
        self.numbers(&[distance << 2 | 1])
    }

    pub(in crate::recording) fn scratch(&mut self, kind: u64, shapes: &[u64]) -> &mut Self {
        self.numbers(&[kind << 2 | 2]).numbers(shapes)
    }

    pub(in crate::recording) fn mark(&mut self, mark: u64) -> &mut Self {
        self.control(3, &[mark])
    }

    pub(in crate::recording) fn end(&mut self, n_events: u64) -> Vec<u8> {
        self.control(0, &[n_events]).0.clone()
    }
}

fn read(bytes: &[u8]) -> Result<Recording, DecodeError> {
    let mut decoder = Decoder::default();
    decoder.push(bytes)?;
    decoder.finish()
}

/// Two blocks of a model with one activation each, a gradient and a workspace.
fn small() -> Vec<u8> {
    let mut file = File::new();
    for text in ["h.0.weight", "h.0", "model.py:9 forward", "h.1.weight", "h.1", "mm", "assumed"] {
        file.defined(text);
    }
    file.control(6, &[7]);
    file.label([1, 2, 3], 1, 1000).label([4, 5, 3], 1, 1000).label([6, 2, 3], 0, 1 << 20).label([6, 5, 3], 0, 1 << 20);
    file.label([4, 5, 0], 2, 1000);
    file.alloc(0).alloc(1).mark(1).scratch(1, &[]).alloc(2).alloc(3);
    file.mark(2).scratch(0, &[5000]).alloc(4).control(5, &[]).free(1).free(2).mark(3).free(0);
    file.end(14)
}

fn on_an_rtx_4090() -> GpuProperties {
    Options { gpu: "RTX 4090".to_owned(), ..Options::default() }.machine().expect("a GPU").gpu()
}

fn program(bytes: &[u8], gpu: GpuProperties) -> Program {
    read(bytes).expect("a recording").program(gpu).expect("a program")
}

#[test]
fn a_recording_is_a_program() {
    let recording = read(&small()).expect("a recording");
    assert_eq!(recording.origin.steps, 2);
    assert_eq!(recording.notes, ["assumed"]);
    let program = program(&small(), on_an_rtx_4090());
    let outcome = simulate(&program, SegmentKind::Native, u64::MAX);
    let phases: Vec<_> = outcome.phases.iter().map(|peak| (peak.phase, peak.live_bytes)).collect();
    let (weights, activations, workspace) = (2 * 4096, 2 * (4 << 20), 8_519_680);
    assert_eq!(
        phases,
        [
            (Phase::Init, weights),
            (Phase::FirstForward, weights + workspace + activations),
            (Phase::FirstBackward, weights + workspace + activations + 4096 + 5120),
            (Phase::FirstOptimizer, weights + workspace + 4096),
        ]
    );
}

#[test]
fn blocks_share_a_name_and_keep_their_number() {
    let recording = read(&small()).expect("a recording");
    let machine = Options::default().machine().expect("a GPU");
    let plan = plan(&recording, machine).expect("a program");
    // The workspace of cuBLAS is larger.
    let largest = &plan.largest_at_peak()[1];
    assert_eq!((largest.count, largest.bytes, largest.layers.as_slice()), (2, 8 << 20, &[0, 1][..]));
    assert_eq!(largest.tensor.stored.name_in(Some("0–1")), "mm (h.0–1)");
    assert_eq!(largest.tensor.stored.source(), "model.py:9 forward");
}

#[test]
fn buffers_of_compiled_code_share_the_name_of_their_operation() {
    let mut file = File::new();
    for text in ["h.0", "h.1", "model.py:9 forward", "mm buf12", "mm buf345", "mm buffer"] {
        file.defined(text);
    }
    for texts in [[4, 1, 3], [5, 2, 3], [6, 1, 3], [4, 0, 3]] {
        file.label(texts, 0, 1 << 20);
    }
    let recording = read(&file.alloc(0).alloc(1).alloc(2).alloc(3).end(4)).expect("a recording");
    let plan = plan(&recording, Options::default().machine().expect("a GPU")).expect("a program");
    let mut names: Vec<String> =
        plan.largest_at_peak().iter().map(|tensor| tensor.tensor.stored.name_in(Some("0–1"))).collect();
    names.sort();
    // Without a block, the buffer tells tensors apart.
    assert_eq!(names, ["mm (h.0–1)", "mm buf12", "mm buffer (h.0–1)"]);
}

#[test]
fn workspaces_are_those_of_the_gpu_asked_about() {
    let recording = read(&small()).expect("a recording");
    let live = |name: &str| {
        let machine = Options { gpu: name.to_owned(), ..Options::default() }.machine().expect("a GPU");
        plan(&recording, machine).expect("a program").peak.live_bytes
    };
    assert_eq!(live("H200") - live("RTX 4090"), (32 << 20) - 8_519_680);
    let other = |name: &str| {
        let machine = Options { gpu: name.to_owned(), ..Options::default() }.machine().expect("a GPU");
        let request = plan(&recording, machine).expect("a program").request;
        request.remarks().iter().any(|remark| remark.to_string().contains("--capability 9.0"))
    };
    assert!(other("H200"));
    assert!(!other("RTX 4090"));
}

#[test]
fn scratch_memory_follows_the_gpu() {
    let of = |kind, shapes: &[u64], gpu: &str| {
        let bytes = File::new().mark(1).scratch(kind, shapes).control(5, &[]).end(3);
        let device = find(gpu).expect("a GPU");
        let gpu = GpuProperties {
            compute_capability: device.compute_capability,
            sm_count: device.sm_count.expect("multiprocessors"),
        };
        simulate(&program(&bytes, gpu), SegmentKind::Native, u64::MAX).live_bytes_peak
    };
    // 12 heads of 1024 tokens: 4 parts of the keys on 128 multiprocessors, each with a sum and 64 values a row.
    assert_eq!(of(2, &[12, 1024, 64], "RTX 4090"), 4 * 12 * 1024 * 65 * 4);
    assert_eq!(of(2, &[768, 1024, 64], "RTX 4090"), 0, "the blocks of the queries fill the GPU");
    // 423 blocks of 32 x 4 threads for each column, as `several_blocks_sum_a_long_column`.
    assert_eq!(of(4, &[49_152, 576], "H200"), 576 * 423 * 128 * 4 + 512);
    assert_eq!(of(4, &[576, 49_152], "H200"), 0);
    // Products, row sums and their copy; later the copy and the workspace of 2 tiles of 64 queries for each head.
    let (products, rows, workspace) = (48 * 65 * 64 * 4, 12_800, 48 * 2 * (16 + 4 * 64 * 64));
    assert_eq!(of(3, &[48, 65, 64, 0, 0], "RTX 4090"), rows + workspace);
    assert_eq!(of(3, &[48, 65, 64, 0, 0], "GTX 1080"), products + 2 * rows);
}

#[test]
fn a_stream_in_pieces_is_the_same_recording() {
    let bytes = small();
    let whole = read(&bytes).expect("a recording");
    for n in [1, 2, 3, 7, 50] {
        let mut decoder = Decoder::default();
        bytes.chunks(n).for_each(|piece| decoder.push(piece).expect("a part of a recording"));
        assert_eq!(decoder.finish().as_ref(), Ok(&whole), "pieces of {n}");
    }
}

#[test]
fn a_cut_file_is_refused_at_every_length() {
    let bytes = small();
    for n in 0..bytes.len() {
        let error = read(&bytes[..n]).expect_err("a part of a recording");
        assert_eq!(error.problem, Problem::Cut, "{n} bytes");
        assert!(error.offset <= n as u64);
    }
}

#[test]
fn hostile_files_are_refused_with_their_offset() {
    let header = File::new().0.len() as u64;
    let refused = |bytes: &[u8]| {
        let error = read(bytes).expect_err("an invalid file");
        (error.offset, error.problem)
    };
    assert_eq!(refused(b"PK\x03\x04"), (0, Problem::NotARecording));
    assert_eq!(refused(b"HEADROOM\x03"), (0, Problem::Version(3)));
    assert_eq!(refused(b"HEADROOM\x00"), (0, Problem::Version(0)));
    assert_eq!(refused(&File::new().alloc(0).end(1)), (header, Problem::Reference));
    assert_eq!(refused(&File::new().free(0).end(1)), (header, Problem::Reference));
    assert_eq!(refused(&File::new().control(6, &[1]).end(0)), (header, Problem::Reference));
    assert_eq!(refused(&File::new().mark(6).end(1)), (header, Problem::Kind));
    assert_eq!(refused(&File::new().control(7, &[]).end(0)), (header, Problem::Kind));
    assert_eq!(refused(&File::new().scratch(6, &[]).end(1)), (header, Problem::Kind));
    assert_eq!(refused(&File::new().scratch(0, &[u64::MAX]).end(1)), (header, Problem::Size));
    assert_eq!(refused(&File::new().scratch(2, &[1 << 30, 1 << 30, 1]).end(1)), (header, Problem::Size));
    assert_eq!(refused(&File::new().scratch(5, &[1 << 30, 1, 1 << 30]).end(1)), (header, Problem::Size));
    assert_eq!(refused(&File::new().label([0; 3], 0, 1 << 60).end(0)), (header, Problem::Size));
    assert_eq!(refused(&File::new().control(1, &[1 << 40]).0), (header, Problem::Text));
    assert_eq!(refused(&File::new().end(1)), (header, Problem::Count));
    assert_eq!(refused(&[File::new().end(0), vec![0]].concat()), (header + 2, Problem::Trailing));
    let mut number = File::new().0;
    number.extend([0xff; 9]);
    number.push(2);
    assert_eq!(refused(&number), (header, Problem::Number));
    // A block is freed once.
    let twice = File::new().label([0; 3], 0, 1).alloc(0).free(0).free(0).end(3);
    assert_eq!(refused(&twice).1, Problem::Reference);
    // More than a petabyte is live.
    let mut large = File::new();
    large.label([0; 3], 0, 1 << 43);
    for _ in 0..33 {
        large.alloc(0);
    }
    assert_eq!(refused(&large.end(33)).1, Problem::Size);
}

#[test]
fn scratch_memory_without_end_is_refused() {
    let mut file = File::new();
    for _ in 0..64 {
        file.scratch(0, &[1 << 45]);
    }
    let recording = read(&file.end(64)).expect("a recording");
    assert_eq!(recording.program(on_an_rtx_4090()).err(), Some(ProgramError::TooLarge));
}

#[test]
fn a_failure_names_its_source_line() {
    let mut file = File::new();
    file.defined("mm").defined("model.py:9 forward").label([1, 0, 2], 0, 1 << 22);
    let recording = read(&file.mark(1).alloc(0).end(2)).expect("a recording");
    let options = Options { vram_bytes: Some(512 << 20), context_bytes: Some(497 << 20), ..Options::default() };
    let plan = plan(&recording, options.machine().expect("a GPU")).expect("a program");
    assert_eq!(plan.failing_source().as_deref(), Some("model.py:9 forward"));
    let oom = plan.oom.expect("a failure");
    assert_eq!((oom.phase, oom.shape.as_slice()), (Phase::FirstForward, &[1 << 22][..]));
    assert!(oom.message.starts_with("CUDA out of memory. Tried to allocate 16.00 MiB."), "{}", oom.message);
    assert_eq!(plan.request.machine().torch, TorchVersion::RECORDED);
}

#[test]
fn changed_bytes_are_refused_or_replayed() {
    let bytes = small();
    let gpu = on_an_rtx_4090();
    let mut replayed = 0;
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at] ^ 4, bytes[at] ^ 0x20] {
            let mut changed = bytes.clone();
            changed[at] = value;
            match read(&changed) {
                Ok(recording) => {
                    let Ok(program) = recording.program(gpu) else { continue };
                    let outcome = simulate(&program, SegmentKind::Expandable, u64::MAX);
                    assert!(outcome.live_bytes_peak <= outcome.max_allocated_bytes);
                    replayed += 1;
                }
                Err(error) => assert!(error.offset <= bytes.len() as u64, "{error}"),
            }
        }
    }
    assert!(replayed > 100, "{replayed}");
}
