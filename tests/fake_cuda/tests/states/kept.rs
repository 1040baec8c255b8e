//! Algorithms of cuBLASLt that were timed once: a run that is resumed takes the same, and a file that cannot be used is
//! told.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use headroom_fake_cuda::{CublasLt as Library, library};
use headroom_kernels::{
    cpu::{
        adamw_update::AdamW,
        gpt::{DropoutPass, Micro},
    },
    rng::Stream,
};
use insta::assert_snapshot;

use crate::{
    child::{Child, Said},
    cublaslt::{machine, trainer},
};

/// Names the folder that algorithms are kept in.
const KEEP: &str = "HEADROOM_STATES_KEEP";

/// The bits of a short run's parameters, and what is said of its products.
#[track_caller]
fn run(test: &'static str, library: Library, folder: &Path) -> Said {
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
        trainer.products().notes().into_iter().for_each(tell);
    })
}

/// The usual library, with what each of its first two algorithms takes.
fn with_millis(millis: [u64; 2]) -> Library {
    let mut library = Library::default();
    library.algorithms.iter_mut().zip(millis).for_each(|(algorithm, millis)| algorithm.millis = millis);
    library
}

/// The algorithms of the one file in a folder, by their numbers.
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
    // Four layers and the head, forward, the gradients of what they are given, and of their weights.
    assert!(algorithms.len() >= 12 && algorithms.iter().all(|&index| index == 1), "the fastest: {algorithms:?}");
    // By now another one is fastest.
    let resumed = run(TEST, with_millis([1000, 3000]), folder.path());
    assert_eq!(resumed.told, first.told);
    assert_eq!(kept(folder.path()).1, algorithms);
    // Another choice would have been another run.
    let other = tempfile::tempdir().expect("a folder");
    let anew = run(TEST, with_millis([1000, 3000]), other.path());
    assert_ne!(anew.told, first.told);
    assert!(kept(other.path()).1.iter().all(|&index| index == 0));
}

#[test]
fn a_damaged_file_is_told_and_made_anew() {
    const TEST: &str = "kept::a_damaged_file_is_told_and_made_anew";
    let folder = tempfile::tempdir().expect("a folder");
    let whole = run(TEST, Library::default(), folder.path());
    let (file, algorithms) = kept(folder.path());
    let text = fs::read_to_string(&file).expect("it is there");
    fs::write(&file, &text[..text.len() / 2]).expect("it can be written");
    let told = run(TEST, Library::default(), folder.path()).told;
    assert_eq!(told.lines().next(), whole.told.lines().next(), "the same are fastest");
    let note = told.lines().nth(1).expect("it is told").replace(&folder.path().display().to_string(), "FOLDER");
    assert_snapshot!(note.split(": EOF").next().unwrap_or_default(), @"cuBLASLt's algorithms are timed anew: FOLDER/cublaslt-nvidia-geforce-rtx-4070-46-12080-120803.json is damaged");
    assert_eq!(kept(folder.path()).1, algorithms);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), text);
}

#[test]
fn an_algorithm_that_the_library_no_longer_knows_is_told_and_chosen_anew() {
    const TEST: &str = "kept::an_algorithm_that_the_library_no_longer_knows_is_told_and_chosen_anew";
    let folder = tempfile::tempdir().expect("a folder");
    run(TEST, Library::default(), folder.path());
    let mut library = Library::default();
    library.algorithms.truncate(1);
    let told = run(TEST, library, folder.path()).told;
    let notes: Vec<&str> = told.lines().skip(1).collect();
    assert!(!notes.is_empty() && notes.iter().all(|note| note.starts_with("cuBLASLt refuses the algorithm kept for ")));
    assert!(kept(folder.path()).1.iter().all(|&index| index == 0));
}

#[test]
fn a_folder_that_is_not_there_is_made() {
    const TEST: &str = "kept::a_folder_that_is_not_there_is_made";
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing");
    let told = run(TEST, Library::default(), &missing).told;
    assert_eq!(told.lines().count(), 1, "nothing is noted: {told}");
    assert!(!kept(&missing).1.is_empty());
}

#[test]
fn a_folder_that_cannot_be_made_is_told_and_the_run_goes_on() {
    const TEST: &str = "kept::a_folder_that_cannot_be_made_is_told_and_the_run_goes_on";
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "in its place").expect("it can be written");
    let told = run(TEST, Library::default(), &folder.path().join("file")).told;
    let note = told.lines().find(|line| line.contains("are not kept")).expect("it is told");
    let note = note.replace(&folder.path().display().to_string(), "FOLDER");
    assert_snapshot!(note, @"cuBLASLt's algorithms are not kept, and a resumed run may take others: FOLDER/file/cublaslt-nvidia-geforce-rtx-4070-46-12080-120803.json: File exists (os error 17)");
}
