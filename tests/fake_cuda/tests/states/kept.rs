//! Saved choices of cuBLASLt algorithms: a resumed run uses the same ones, and an unusable file is reported.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use headroom_fake_cuda::{CublasLt as Library, library};
use headroom_kernels::{
    reference::{
        adamw_update::AdamW,
        gpt::{DropoutPass, Micro},
    },
    rng::Stream,
};
use insta::assert_snapshot;

use crate::{
    child::{Child, ChildOutput},
    cublaslt::{machine, trainer},
};

/// The environment variable with the directory of saved algorithms.
const KEEP: &str = "HEADROOM_STATES_KEEP";

/// Returns the bits of a short run's parameters, and the notes about its GEMMs.
#[track_caller]
fn run(test: &'static str, library: Library, folder: &Path) -> ChildOutput {
    let child = Child::on(test, &machine(library)).with(KEEP, folder);
    child.with("HEADROOM_CUBLASLT", self::library().expect("it was built")).run(|tell| {
        let folder = PathBuf::from(env::var_os(KEEP).expect("it is set"));
        let mut trainer = trainer(Some(&folder)).expect("it begins");
        let mut stream = Stream::new(1, 1);
        #[expect(clippy::cast_possible_truncation, reason = "parameters are f32")]
        let params: Vec<f32> = (0..trainer.layout().len()).map(|_| stream.normal() as f32 * 0.2).collect();
        trainer.write_params(&params).expect("as many");
        let (x, y) = trainer.batch_mut();
        x.iter_mut().chain(y).zip((0..11).cycle()).for_each(|(token, word)| *token = word);
        for step in 1..=3 {
            trainer.micro_step(Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE }).expect("it runs");
            let (eps, gradient_scale) = (AdamW::EPS, 1.0);
            let adamw =
                AdamW { learning_rate: 1e-2, beta1: 0.9, beta2: 0.95, eps, weight_decay: 0.1, step, gradient_scale };
            trainer.update(adamw).expect("it runs");
        }
        let bits = trainer.read_params().expect("they are there");
        let mixed = |sum: u64, x: &f32| (sum ^ u64::from(x.to_bits())).wrapping_mul(0x100_0000_01b3);
        tell(format!("bits {:016x}", bits.iter().fold(0xcbf2_9ce4_8422_2325, mixed)));
        trainer.gemm().notes().into_iter().for_each(tell);
    })
}

/// Returns the default library with these times of its first two algorithms.
fn with_millis(millis: [u64; 2]) -> Library {
    let mut library = Library::default();
    library.algorithms.iter_mut().zip(millis).for_each(|(algorithm, millis)| algorithm.millis = millis);
    library
}

/// Returns the only file in a directory, and the indices of the algorithms in it.
fn kept(folder: &Path) -> (PathBuf, Vec<u64>) {
    let files: Vec<_> = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    let [file] = &files[..] else { panic!("one file, and not {files:?}") };
    let contents: serde_json::Value = serde_json::from_slice(&fs::read(file).expect("it is there")).expect("JSON");
    let algorithms = contents["algorithms"].as_object().expect("by shapes");
    (file.clone(), algorithms.values().map(|words| words[1].as_u64().expect("a number")).collect())
}

#[test]
fn a_resumed_run_takes_the_algorithms_of_the_first() {
    const TEST: &str = "kept::a_resumed_run_takes_the_algorithms_of_the_first";
    let folder = tempfile::tempdir().expect("a folder");
    let first = run(TEST, with_millis([3000, 1000]), folder.path());
    let (_, algorithms) = kept(folder.path());
    // Four layers and the head: forward, input gradients and weight gradients.
    assert!(algorithms.len() >= 12 && algorithms.iter().all(|&index| index == 1), "the fastest: {algorithms:?}");
    // Another algorithm is fastest now.
    let resumed = run(TEST, with_millis([1000, 3000]), folder.path());
    assert_eq!(resumed.output, first.output);
    assert_eq!(kept(folder.path()).1, algorithms);
    // A new choice changes the run's results.
    let other = tempfile::tempdir().expect("a folder");
    let anew = run(TEST, with_millis([1000, 3000]), other.path());
    assert_ne!(anew.output, first.output);
    assert!(kept(other.path()).1.iter().all(|&index| index == 0));
}

#[test]
fn damaged_file_is_reported_and_recreated() {
    const TEST: &str = "kept::damaged_file_is_reported_and_recreated";
    let folder = tempfile::tempdir().expect("a folder");
    let whole = run(TEST, Library::default(), folder.path());
    let (file, algorithms) = kept(folder.path());
    let text = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, &text[..text.len() / 2]).expect("it can be written");
    let output = run(TEST, Library::default(), folder.path()).output;
    assert_eq!(output.lines().next(), whole.output.lines().next(), "the same are fastest");
    let note = output.lines().nth(1).expect("it is reported").replace(&folder.path().display().to_string(), "FOLDER");
    assert_snapshot!(note.split(": EOF").next().unwrap_or_default(), @"cannot use the stored cuBLASLt algorithms: FOLDER/cublaslt-nvidia-geforce-rtx-4070-46-12080-120803.json is damaged");
    assert_eq!(kept(folder.path()).1, algorithms);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), text);
}

#[test]
fn unknown_algorithm_is_reported_and_selected_again() {
    const TEST: &str = "kept::unknown_algorithm_is_reported_and_selected_again";
    let folder = tempfile::tempdir().expect("a folder");
    run(TEST, Library::default(), folder.path());
    let mut library = Library::default();
    library.algorithms.truncate(1);
    let output = run(TEST, library, folder.path()).output;
    let notes: Vec<&str> = output.lines().skip(1).collect();
    assert!(!notes.is_empty() && notes.iter().all(|note| note.starts_with("cannot use the stored algorithm for ")));
    assert!(kept(folder.path()).1.iter().all(|&index| index == 0));
}

#[test]
fn a_folder_that_is_not_there_is_made() {
    const TEST: &str = "kept::a_folder_that_is_not_there_is_made";
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing");
    let output = run(TEST, Library::default(), &missing).output;
    assert_eq!(output.lines().count(), 1, "nothing is noted: {output}");
    assert!(!kept(&missing).1.is_empty());
}

#[test]
fn folder_error_is_reported_and_run_continues() {
    const TEST: &str = "kept::folder_error_is_reported_and_run_continues";
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "in its place").expect("it can be written");
    let output = run(TEST, Library::default(), &folder.path().join("file")).output;
    let note = output.lines().find(|line| line.contains("are not kept")).expect("it is reported");
    let note = note.replace(&folder.path().display().to_string(), "FOLDER");
    assert_snapshot!(note, @"cuBLASLt's algorithms are not kept, and a resumed run may take others: FOLDER/file/cublaslt-nvidia-geforce-rtx-4070-46-12080-120803.json: File exists (os error 17)");
}
