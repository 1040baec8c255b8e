//! Tests of orders with a real history: accepted and rejected orders, and their effects. No scheduler runs here.

use std::{
    fs, slice, thread,
    time::{Instant, SystemTime},
};

use headroom_protocol::{event::EventKind, message::Message};
use tempfile::TempDir;

use super::*;
use crate::fakes;
use headroom_agent_core::store::{self, RetentionLimits};
use headroom_kernels::layout::Layout;
use headroom_planner::gpt::{GptConfig, GptShape};
use headroom_train::checkpoint::{self, Meta, State, Tensors};

/// Saves a checkpoint of a tiny model.
fn save_checkpoint(dir: &Path) {
    let shape = GptShape { n_layer: 1, n_head: 2, n_embd: 4, block_size: 3, vocab_size: 5, dropout: 0.0, bias: true };
    let gpt = GptConfig::new(shape).expect("a valid shape");
    let zeros = vec![0.0; Layout::new(&gpt).expect("a small model").len()];
    let meta = Meta { gpt, config: serde_json::Map::new(), state: State::default(), tokenizer: None };
    let tensors = Tensors { params: &zeros, exp_avg: &zeros, exp_avg_sq: &zeros };
    checkpoint::Store::open(dir).expect("a folder").save(&meta, tensors).expect("space");
}

struct TestData {
    gpus: SharedGpus,
    run_manager: RunManager,
    store: Store,
    /// Dropped last: the store's thread waits five seconds for a directory that is gone.
    folder: TempDir,
}

impl TestData {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for path in ["data", "train/config", "train/data/fox", "outside"] {
            fs::create_dir_all(folder.path().join(path)).expect("a folder");
        }
        for half in ["train.bin", "val.bin"] {
            fs::write(folder.path().join("train/data/fox").join(half), [0; 4096]).expect("a file");
        }
        let config = |path: &str, text: &str| fs::write(folder.path().join(path), text).expect("a config");
        config("train/config/fox.py", "dataset = 'fox'\nmax_iters = 7\n");
        config("train/config/other.py", "dataset = 'openwebtext'\n");

        config("outside/secret.py", "dataset = 'fox'\n");
        let data = folder.path().join("data");
        let store = Store::open(&data, RetentionLimits::default(), |_| {}).expect("a thread");
        let train = folder.path().join("train");
        let gpus = SharedGpus::default();
        let run_manager = RunManager::new(&data, Some(&train), &store, Arc::clone(&gpus), SchedulerWaker::new().0);
        Self { gpus, run_manager, store, folder }
    }

    /// A run that could not be started, with its folder.
    fn failed_start(&self) -> (Run, PathBuf) {
        let run = self.order(&of("fox.py")).expect("there is room");
        let archive = self.store.archive();
        archive.claim(&run.id, None, 1).expect("history");
        archive.not_started(&run.id, 1, 2).expect("history");
        let folder = own_folder(&run).expect("a folder");
        (run, folder)
    }

    /// As [`RunManager::order`], once the history is ready.
    fn order(&self, order: &RunRequest) -> Result<Run, Error> {
        let start = Instant::now();
        loop {
            match self.run_manager.order(order.clone()) {
                Err(Error::Store(store::Error::Unusable(_))) if start.elapsed().as_secs() < 60 => {
                    thread::yield_now();
                }
                done => return done,
            }
        }
    }

    fn folders(&self) -> usize {
        let entries = fs::read_dir(self.folder.path().join("train")).expect("a folder").flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("out-")).count()
    }
}

fn of(config: &str) -> RunRequest {
    RunRequest { config: config.to_owned(), ..RunRequest::default() }
}

#[test]
fn an_order_is_a_run_that_waits_with_every_name_filled_in() {
    let place = TestData::new();
    let run = place.order(&RunRequest { name: Some("  a name ".to_owned()), ..of("fox.py") }).expect("it is allowed");
    let order = run.order.clone().expect("its order");
    assert_eq!((run.status, &*run.name, run.max_iters), (RunStatus::Queued, "a name", Some(7)));
    assert_eq!((order.dataset.as_deref(), order.device.as_deref()), (Some("fox"), Some("cpu")));
    assert_eq!(place.store.archive().queued().expect("a queue"), slice::from_ref(&run));
    assert_eq!(out_dir(&run), Some(own_folder(&run).expect("a folder")));
    let config = fs::read_to_string(own_folder(&run).expect("a folder").join(run_dir::CONFIG)).expect("its config");
    assert_eq!(Some(config), run.config);
    assert!(run.command.contains(&"train".to_owned()) && run.command.contains(&"--device=cpu".to_owned()), "{run:?}");
    // The built-in config with another data set keeps its name.
    let run = place.order(&RunRequest { dataset: Some("fox".to_owned()), ..of("stories") }).expect("it is allowed");
    assert_eq!((&*run.name, run.max_iters), ("stories", Some(5000)));
    assert!(run.command.iter().any(|word| word.ends_with("data/fox")), "{:?}", run.command);
}

#[test]
fn a_config_is_trained_on_the_device_that_it_names() {
    let place = TestData::new();
    let config = place.folder.path().join("train/config/slow.py");
    fs::write(&config, "dataset = 'fox'\ndevice = 'cpu'\n").expect("a config");
    *place.gpus.lock().expect("the lock is not poisoned") = vec![fakes::gpu(0)];
    let training = place.run_manager.training();
    let own =
        |name: &str| training.configs.iter().find(|config| config.name == name).map(|config| config.device.clone());
    assert_eq!((own("slow.py"), own("fox.py")), (Some(Some("cpu".to_owned())), Some(None)));
    let device = |run: Run| run.order.and_then(|order| order.device);
    assert_eq!(device(place.order(&of("slow.py")).expect("it is allowed")).as_deref(), Some("cpu"));
    // A device that this machine does not have is ignored.
    fs::write(&config, "dataset = 'fox'\ndevice = 'cuda:7'\n").expect("a config");
    let training = place.run_manager.training();
    let slow = training.configs.iter().find(|config| config.name == "slow.py").expect("it is there");
    assert_eq!(slow.device, None);
    // The built-in config's device is meant for nanoGPT on any machine.
    let stories = training.configs.iter().find(|config| config.name == "stories").expect("it is there");
    assert_eq!(stories.device, None);
}

#[test]
fn nothing_else_can_be_named() {
    let place = TestData::new();
    let outside = place.folder.path().join("outside/secret.py").display().to_string();
    let bad: Vec<String> = [
        "",
        ".",
        "..",
        "fox.py\0",
        "fox.py ",
        "./fox.py",
        "../outside/secret.py",
        "config/fox.py",
        "--out_dir=/tmp",
        "--init_from=resume",
        "-",
        "FOX.PY",
        "fox.py\n",
        "~",
        "$HOME",
        "`id`",
        "CON",
        "fox.py:stream",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([outside, "x".repeat(10_000), "../".repeat(50)])
    .collect();
    for name in &bad {
        for order in [
            of(name),
            RunRequest { dataset: Some(name.clone()), ..of("fox.py") },
            RunRequest { device: Some(name.clone()), ..of("fox.py") },
        ] {
            let refused = place.run_manager.order(order).expect_err(name);
            let says = refused.to_string();
            assert!(matches!(refused, Error::NotAllowed { .. }) && says.len() < 700, "{name:?}: {says}");
        }
    }
    let refused = place.run_manager.order(of("none.py")).expect_err("it is not there").to_string();
    assert!(refused.contains("stories, fox.py, other.py"), "it lists the valid ones: {refused}");
    let refused = place.run_manager.order(of("other.py")).expect_err("its data are not").to_string();
    assert!(refused.contains("\"openwebtext\"") && refused.contains("builtin, fox"), "{refused}");
    for name in ["", " ", "\u{1b}[2J", "a\nb", &"x".repeat(61)] {
        let order = RunRequest { name: Some(name.to_owned()), ..of("fox.py") };
        assert!(matches!(place.run_manager.order(order), Err(Error::Name { .. })), "{name:?}");
    }
    assert_eq!(place.folders(), 0, "no run directory was created");
}

/// Asserts that the message and its parts are translated: the German text has no English word.
#[track_caller]
fn is_translated(message: &Message) {
    let said = message.render(headroom_languages::table("de"));
    assert_ne!(said, message.en);
    assert!([" is ", " the ", " has ", " are ", " not "].iter().all(|word| !said.contains(word)), "{said}");
}

#[test]
fn invalid_trainer_value_is_refused_with_position() {
    let place = TestData::new();
    let path = place.folder.path().join("train/config/new.py");
    let secret = place.folder.path().join("outside/secret.py").display().to_string();
    for (line, says) in [
        ("init_from = 'gone.safetensors'", "weights \"gone.safetensors\" not found"),
        (&*format!("init_from = {secret:?}"), "secret.py"),
        ("init_from = ''", "not found on this machine"),
        ("init_from = 'resume'", "no checkpoint to resume from"),
        ("n_layer = = 3", "`=` is not expected here"),
        ("block_size = 'long'", "block_size is 'long'"),
        ("n_head = 5", "n_head"),
        ("batch_size = 0", "batch_size is 0"),
        ("beta1 = 1.5", "beta1 is 1.5"),
        ("block_size = 4096", "2048 tokens are too few"),
    ] {
        fs::write(&path, format!("dataset = 'fox'\n{line}\n")).expect("a config");
        let refused = place.run_manager.order(of("new.py")).expect_err(line);
        let why = refused.to_string();
        assert!(matches!(refused, Error::Config { .. }) && why.contains("new.py:2:") && why.contains(says), "{why}");
        // Causes for an unreadable weights file come from its reader, in English.
        if !why.contains("secret.py") {
            is_translated(&refused.text().into());
        }
    }
    assert_eq!(place.folders(), 0, "no run directory was created");
}

#[test]
fn lines_that_the_trainer_does_without_are_said_with_the_run() {
    let place = TestData::new();
    let path = place.folder.path().join("train/config/new.py");
    fs::write(&path, "import os\ndataset = 'fox'\nforks_key = 3\nseed = 7\n").expect("a config");
    let run = place.order(&of("new.py")).expect("it can be trained");
    assert_eq!(run.config_notes.len(), 2, "{:?}", run.config_notes);
    assert!(run.config_notes[0].en.starts_with("new.py:1:1: `import`"), "{:?}", run.config_notes);
    assert!(run.config_notes[1].en.starts_with("new.py:3:1: forks_key"), "{:?}", run.config_notes);
    let queued = place.store.archive().queued().expect("a queue").remove(0);
    assert_eq!(queued.config_notes, run.config_notes, "history has them");
    run.config_notes.iter().for_each(is_translated);
    let run = place.order(&of("fox.py")).expect("it can be trained");
    assert!(run.config_notes.is_empty() && run.command.iter().all(|word| !word.contains("init_from")), "{run:?}");
}

#[test]
fn a_queue_has_its_bound_and_what_is_refused_leaves_nothing() {
    let place = TestData::new();
    for _ in 0..QUEUED_MAX {
        place.order(&of("fox.py")).expect("there is room");
    }
    let full = place.order(&of("fox.py")).expect_err("the queue is full");
    assert!(matches!(full, Error::Store(store::Error::QueueFull(QUEUED_MAX))), "{full}");
    assert_eq!(place.folders() as u64, QUEUED_MAX);
    let first = place.store.archive().queued().expect("a queue").remove(0);
    assert_eq!(place.run_manager.stop(&first.id).expect("it waits").status, RunStatus::unqueued());
    place.order(&of("fox.py")).expect("there is room again");
    place.store.delete_run(&first.id).expect("it ended");
    place.run_manager.deleted(&first).expect("its folder is deleted");
    assert_eq!(place.folders() as u64, QUEUED_MAX);
}

#[test]
fn a_run_is_claimed_once() {
    let place = TestData::new();
    let run = place.order(&of("fox.py")).expect("there is room");
    let archive = place.store.archive();
    assert_eq!(archive.claim(&run.id, None, 1).expect("history").map(|run| run.id), Some(run.id.clone()));
    assert_eq!(archive.claim(&run.id, None, 2).expect("history"), None);
    assert_eq!(archive.queued().expect("a queue"), []);
    assert_eq!(archive.going_on().expect("runs").len(), 1);
    assert!(matches!(archive.claim("none", None, 3), Err(store::Error::NoRun(_))));
    let refused = place.run_manager.resume(&run.id).expect_err("it continues");
    assert!(matches!(refused, Error::Store(store::Error::NotEnded(_))), "{refused}");
}

#[test]
fn queued_resume_shows_its_resume_command() {
    let place = TestData::new();
    let (run, folder) = place.failed_start();
    save_checkpoint(&folder);
    let waits = place.run_manager.resume(&run.id).expect("it has a checkpoint");
    let words = |word: &str| waits.command.iter().filter(|own| own.contains(word)).count();
    assert_eq!((waits.status, words("--init_from=resume"), words(run_dir::CONFIG)), (RunStatus::Queued, 1, 0));
    let queued = place.store.archive().queued().expect("a queue");
    assert_eq!(queued, slice::from_ref(&waits), "so history has it");
    assert_eq!(own_folder(&waits).expect("it is ours"), folder);
}

#[test]
fn resumed_run_without_a_checkpoint_starts_over() {
    let place = TestData::new();
    let (run, folder) = place.failed_start();
    // A file that is not a checkpoint is neither resumed nor replaced.
    fs::write(run_dir::checkpoint(&folder), "other").expect("written");
    assert!(matches!(place.run_manager.resume(&run.id), Err(Error::NothingSaved(_))));
    fs::remove_file(run_dir::checkpoint(&folder)).expect("removed");
    let config = fs::read(folder.join(run_dir::CONFIG)).expect("a config");
    fs::remove_file(folder.join(run_dir::CONFIG)).expect("removed");
    assert!(matches!(place.run_manager.resume(&run.id), Err(Error::NothingSaved(_))));
    fs::write(folder.join(run_dir::CONFIG), config).expect("written");
    let resumed = place.run_manager.resume(&run.id).expect("queued");
    assert_eq!((resumed.status, &resumed.command), (RunStatus::Queued, &run.command));
}

/// As on Windows, or for a run of an earlier agent whose process cannot be identified.
#[test]
fn unreachable_run_is_stopped_by_file() {
    let place = TestData::new();
    let run = place.order(&of("fox.py")).expect("there is room");
    let archive = place.store.archive();
    archive.claim(&run.id, None, 1).expect("history");
    let file = run_dir::stop(&own_folder(&run).expect("a folder"));
    place.run_manager.stop(&run.id).expect("it runs");
    assert_eq!(fs::read(&file).expect("it is there"), b"");
    // A request repeated immediately has no further effect.
    place.run_manager.stop(&run.id).expect("it runs");
    assert_eq!(fs::read(&file).expect("it is there"), b"");
    place.run_manager.0.request_stop(&run, None, true).expect("it runs");
    assert_eq!(fs::read(&file).expect("it is there"), b"now");
}

#[test]
fn stop_that_cannot_be_delivered_is_not_recorded() {
    let place = TestData::new();
    let run = place.order(&of("fox.py")).expect("there is room");
    place.store.archive().claim(&run.id, None, 1).expect("history");
    let folder = own_folder(&run).expect("a folder");
    let moved = folder.with_extension("moved");
    fs::rename(&folder, &moved).expect("moved");
    for _ in 0..2 {
        let refused = place.run_manager.stop(&run.id).expect_err("the stop file cannot be written");
        assert!(matches!(refused, Error::Folder { .. }), "{refused}");
    }
    fs::rename(&moved, &folder).expect("moved back");
    // If the refused requests were recorded, this one would count as a repetition without effect.
    place.run_manager.stop(&run.id).expect("it runs");
    assert_eq!(fs::read(run_dir::stop(&folder)).expect("it is there"), b"");
}

/// As after a stop whose record could not be committed: the agent remembers that it delivered the request.
#[test]
fn delivered_stop_without_a_record_counts_as_the_first() {
    let place = TestData::new();
    let archive = place.store.archive();
    for (passed_ms, content) in [(0, None), (STOP_MS, Some(&b"now"[..]))] {
        let run = place.order(&of("fox.py")).expect("there is room");
        archive.claim(&run.id, None, 1).expect("history");
        let inner = &place.run_manager.0;
        inner.unrecorded_stops().insert(run.id.clone(), now_ms() - passed_ms);
        place.run_manager.stop(&run.id).expect("it runs");
        let file = run_dir::stop(&own_folder(&run).expect("a folder"));
        assert_eq!(fs::read(&file).ok().as_deref(), content, "{passed_ms} ms later");
        assert!(inner.unrecorded_stops().is_empty(), "now it is recorded");
        let stopping = archive.events(Some(&run.id), 0, 100).expect("history");
        assert_eq!(stopping.iter().filter(|event| event.what == EventKind::RunStopping).count(), 1);
    }
}

#[test]
fn second_stop_of_an_orphaned_trainer_ends_it_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = run_dir::stop(folder.path());
    // The second request follows immediately.
    for _ in 0..2 {
        stop_orphan(folder.path()).expect("a writable folder");
        assert_eq!(fs::read(&file).expect("it is there"), b"");
    }
    let before = SystemTime::now() - Duration::from_millis(STOP_MS);
    File::options().write(true).open(&file).and_then(|file| file.set_modified(before)).expect("a writable file");
    for _ in 0..2 {
        stop_orphan(folder.path()).expect("a writable folder");
        assert_eq!(fs::read(&file).expect("it is there"), b"now");
    }
}

#[test]
fn a_folder_that_is_not_called_as_ours_is_not_touched() {
    let place = TestData::new();
    let run = place.order(&of("fox.py")).expect("there is room");
    for command in ["--out_dir=/tmp", "--out_dir=out-x", "--out_dir=", "train"] {
        let run = Run { command: vec![command.to_owned()], ..run.clone() };
        assert!(own_folder(&run).is_err(), "{command}");
    }
    assert!(own_folder(&Run { order: None, ..run }).is_err(), "the run was not started by the agent");
}

#[test]
fn without_a_folder_it_says_how() {
    let place = TestData::new();
    let run_manager =
        RunManager::new(place.folder.path(), None, &place.store, SharedGpus::default(), SchedulerWaker::new().0);
    let training = run_manager.training();
    assert!(training.unavailable.is_some_and(|why| why.is(text::NO_FOLDER_ALLOWED)) && training.configs.is_empty());
    assert!(matches!(run_manager.order(of("stories")), Err(Error::Unavailable(_))));
    let gone = place.folder.path().join("none");
    let run_manager =
        RunManager::new(place.folder.path(), Some(&gone), &place.store, SharedGpus::default(), SchedulerWaker::new().0);
    assert!(run_manager.training().unavailable.is_some_and(|why| why.en.contains("Cannot use the --train folder")));
}

#[test]
fn gpus_are_counted_as_cuda_counts_them() {
    let gpus: Vec<Gpu> = (0..3).map(fakes::gpu).collect();
    let seen = |visible| seen_by_cuda(&gpus, visible).iter().map(|gpu| gpu.index).collect::<Vec<_>>();
    assert_eq!(seen(None), [0, 1, 2]);
    assert_eq!(seen(Some("2, 0")), [2, 0]);
    assert_eq!(seen(Some("GPU-1,7,0")), [1]);
    assert_eq!(seen(Some("")), [0; 0]);
}
