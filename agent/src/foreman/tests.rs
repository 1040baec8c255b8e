//! Orders over a real history: what is taken, what is refused, and what is left of it. No yard starts anything here.

use std::{slice, thread, time::Instant};

use tempfile::TempDir;

use super::*;
use crate::{
    server::made,
    store::{self, Keep},
    train::checkpoint,
};

struct Place {
    folder: TempDir,
    cards: Cards,
    foreman: Foreman,
    store: Store,
}

impl Place {
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
        let store = Store::open(&data, Keep::default(), |_| {}).expect("a thread");
        let train = folder.path().join("train");
        let cards = Cards::default();
        let foreman = Foreman::new(&data, Some(&train), &store, Arc::clone(&cards), Bell::new().0);
        Self { folder, cards, foreman, store }
    }

    /// As [`Foreman::order`], once history has begun.
    fn order(&self, order: &Order) -> Result<Run, Error> {
        let start = Instant::now();
        loop {
            match self.foreman.order(order.clone()) {
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

fn of(config: &str) -> Order {
    Order { config: config.to_owned(), ..Order::default() }
}

#[test]
fn an_order_is_a_run_that_waits_with_every_name_filled_in() {
    let place = Place::new();
    let run = place.order(&Order { name: Some("  a name ".to_owned()), ..of("fox.py") }).expect("it is allowed");
    let order = run.order.clone().expect("its order");
    assert_eq!((run.status, &*run.name, run.max_iters), (RunStatus::Queued, "a name", Some(7)));
    assert_eq!((order.dataset.as_deref(), order.device.as_deref()), (Some("fox"), Some("cpu")));
    assert_eq!(place.store.archive().queued().expect("a queue"), slice::from_ref(&run));
    assert_eq!(out_dir(&run), Some(own_folder(&run).expect("a folder")));
    let config = fs::read_to_string(own_folder(&run).expect("a folder").join(place::CONFIG)).expect("its config");
    assert_eq!(Some(config), run.config);
    assert!(run.command.contains(&"train".to_owned()) && run.command.contains(&"--device=cpu".to_owned()), "{run:?}");
    // The built-in one with another's data, under its own name.
    let run = place.order(&Order { dataset: Some("fox".to_owned()), ..of("stories") }).expect("it is allowed");
    assert_eq!((&*run.name, run.max_iters), ("stories", Some(5000)));
    assert!(run.command.iter().any(|word| word.ends_with("data/fox")), "{:?}", run.command);
}

#[test]
fn a_config_is_trained_on_the_device_that_it_names() {
    let place = Place::new();
    let config = place.folder.path().join("train/config/slow.py");
    fs::write(&config, "dataset = 'fox'\ndevice = 'cpu'\n").expect("a config");
    *place.cards.lock().expect("nobody panicked") = vec![made::gpu(0)];
    let training = place.foreman.training();
    let own =
        |name: &str| training.configs.iter().find(|config| config.name == name).map(|config| config.device.clone());
    assert_eq!((own("slow.py"), own("fox.py")), (Some(Some("cpu".to_owned())), Some(None)));
    let device = |run: Run| run.order.and_then(|order| order.device);
    assert_eq!(device(place.order(&of("slow.py")).expect("it is allowed")).as_deref(), Some("cpu"));
    // A name that is none of this machine's means nothing here.
    fs::write(&config, "dataset = 'fox'\ndevice = 'cuda:7'\n").expect("a config");
    let training = place.foreman.training();
    let slow = training.configs.iter().find(|config| config.name == "slow.py").expect("it is there");
    assert_eq!(slow.device, None);
    // What ours names is for nanoGPT, on any machine.
    let stories = training.configs.iter().find(|config| config.name == "stories").expect("it is there");
    assert_eq!(stories.device, None);
}

#[test]
fn nothing_else_can_be_named() {
    let place = Place::new();
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
            Order { dataset: Some(name.clone()), ..of("fox.py") },
            Order { device: Some(name.clone()), ..of("fox.py") },
        ] {
            let refused = place.foreman.order(order).expect_err(name);
            let says = refused.to_string();
            assert!(matches!(refused, Error::NotAllowed { .. }) && says.len() < 700, "{name:?}: {says}");
        }
    }
    let refused = place.foreman.order(of("none.py")).expect_err("it is not there").to_string();
    assert!(refused.contains("stories, fox.py, other.py"), "it says what there is: {refused}");
    let refused = place.foreman.order(of("other.py")).expect_err("its data are not").to_string();
    assert!(refused.contains("\"openwebtext\"") && refused.contains("builtin, fox"), "{refused}");
    for name in ["", " ", "\u{1b}[2J", "a\nb", &"x".repeat(61)] {
        let order = Order { name: Some(name.to_owned()), ..of("fox.py") };
        assert!(matches!(place.foreman.order(order), Err(Error::Name { .. })), "{name:?}");
    }
    assert_eq!(place.folders(), 0, "nothing was made of any");
}

/// Each line is of a text, and so is what is within it: in German no word of it is English.
#[track_caller]
fn is_said(lines: &str) {
    let german = text::table("de");
    for line in lines.lines() {
        let said = german.translated(line);
        assert_ne!(said, line, "it is of no text");
        assert!([" is ", " the ", " has ", " are ", " not "].iter().all(|word| !said.contains(word)), "{said}");
    }
}

#[test]
fn what_the_trainer_would_not_take_is_refused_with_its_place() {
    let place = Place::new();
    let path = place.folder.path().join("train/config/new.py");
    let secret = place.folder.path().join("outside/secret.py").display().to_string();
    for (line, says) in [
        ("init_from = 'gone.safetensors'", "there are no weights \"gone.safetensors\""),
        (&*format!("init_from = {secret:?}"), "secret.py"),
        ("init_from = ''", "there are no weights"),
        ("init_from = 'resume'", "no checkpoint to go on from"),
        ("n_layer = = 3", "`=` is not expected here"),
        ("block_size = 'long'", "block_size is 'long'"),
        ("n_head = 5", "n_head"),
        ("batch_size = 0", "batch_size is 0"),
        ("beta1 = 1.5", "beta1 is 1.5"),
        ("block_size = 4096", "2048 tokens are too few"),
    ] {
        fs::write(&path, format!("dataset = 'fox'\n{line}\n")).expect("a config");
        let refused = place.foreman.order(of("new.py")).expect_err(line);
        let why = refused.to_string();
        assert!(matches!(refused, Error::Config { .. }) && why.contains("new.py:2:") && why.contains(says), "{why}");
        // What is wrong with a file of weights is the reader's to say, in English.
        if !why.contains("secret.py") {
            is_said(&why);
        }
    }
    assert_eq!(place.folders(), 0, "nothing was made of any");
}

#[test]
fn lines_that_the_trainer_does_without_are_said_with_the_run() {
    let place = Place::new();
    let path = place.folder.path().join("train/config/new.py");
    fs::write(&path, "import os\ndataset = 'fox'\nforks_key = 3\nseed = 7\n").expect("a config");
    let run = place.order(&of("new.py")).expect("it can be trained");
    assert_eq!(run.config_notes.len(), 2, "{:?}", run.config_notes);
    assert!(run.config_notes[0].starts_with("new.py:1:1: `import`"), "{:?}", run.config_notes);
    assert!(run.config_notes[1].starts_with("new.py:3:1: forks_key"), "{:?}", run.config_notes);
    let queued = place.store.archive().queued().expect("a queue").remove(0);
    assert_eq!(queued.config_notes, run.config_notes, "history has them");
    run.config_notes.iter().for_each(|note| is_said(note));
    let run = place.order(&of("fox.py")).expect("it can be trained");
    assert!(run.config_notes.is_empty() && run.command.iter().all(|word| !word.contains("init_from")), "{run:?}");
}

#[test]
fn a_queue_has_its_bound_and_what_is_refused_leaves_nothing() {
    let place = Place::new();
    for _ in 0..QUEUED_MAX {
        place.order(&of("fox.py")).expect("there is room");
    }
    let full = place.order(&of("fox.py")).expect_err("there is none");
    assert!(matches!(full, Error::Store(store::Error::QueueFull(QUEUED_MAX))), "{full}");
    assert_eq!(place.folders() as u64, QUEUED_MAX);
    let first = place.store.archive().queued().expect("a queue").remove(0);
    assert_eq!(place.foreman.stop(&first.id).expect("it waits").status, RunStatus::unqueued());
    place.order(&of("fox.py")).expect("there is room again");
    place.store.delete_run(&first.id).expect("it ended");
    place.foreman.deleted(&first).expect("its folder goes");
    assert_eq!(place.folders() as u64, QUEUED_MAX);
}

#[test]
fn a_run_is_claimed_once() {
    let place = Place::new();
    let run = place.order(&of("fox.py")).expect("there is room");
    let archive = place.store.archive();
    assert_eq!(archive.claim(&run.id, None, 1).expect("history").map(|run| run.id), Some(run.id.clone()));
    assert_eq!(archive.claim(&run.id, None, 2).expect("history"), None);
    assert_eq!(archive.queued().expect("a queue"), []);
    assert_eq!(archive.going_on().expect("runs").len(), 1);
    assert!(matches!(archive.claim("none", None, 3), Err(store::Error::NoRun(_))));
    let refused = place.foreman.resume(&run.id).expect_err("it goes on");
    assert!(matches!(refused, Error::Store(store::Error::NotEnded(_))), "{refused}");
}

#[test]
fn a_run_that_waits_to_be_gone_on_with_has_the_command_that_it_goes_on_by() {
    let place = Place::new();
    let run = place.order(&of("fox.py")).expect("there is room");
    let archive = place.store.archive();
    archive.claim(&run.id, None, 1).expect("history");
    archive.not_started(&run.id, 1, 2).expect("history");
    let folder = own_folder(&run).expect("a folder");
    assert!(matches!(place.foreman.resume(&run.id), Err(Error::NothingSaved(_))));
    checkpoint::tests::save_into(&folder);
    let waits = place.foreman.resume(&run.id).expect("it has a checkpoint");
    let words = |word: &str| waits.command.iter().filter(|own| own.contains(word)).count();
    assert_eq!((waits.status, words("--init_from=resume"), words(place::CONFIG)), (RunStatus::Queued, 1, 0));
    assert_eq!(archive.queued().expect("a queue"), slice::from_ref(&waits), "so history has it");
    assert_eq!(own_folder(&waits).expect("it is ours"), folder);
}

/// As on Windows, and of a run that an agent before started, where the system does not say which process it is.
#[test]
fn a_run_that_no_signal_reaches_is_asked_to_end_by_a_file() {
    let place = Place::new();
    let run = place.order(&of("fox.py")).expect("there is room");
    let archive = place.store.archive();
    archive.claim(&run.id, None, 1).expect("history");
    let file = place::stop(&own_folder(&run).expect("a folder"));
    place.foreman.stop(&run.id).expect("it runs");
    assert_eq!(fs::read(&file).expect("it is there"), b"");
    // Pressed again at once it says no more.
    place.foreman.stop(&run.id).expect("it runs");
    assert_eq!(fs::read(&file).expect("it is there"), b"");
    place.foreman.0.ask_to_end(&run.id, None, true).expect("it runs");
    assert_eq!(fs::read(&file).expect("it is there"), b"now");
    // Without its folder there is no way.
    fs::remove_dir_all(own_folder(&run).expect("a folder")).expect("it goes");
    let refused = place.foreman.0.ask_to_end(&run.id, None, false).expect_err("it is gone");
    assert!(matches!(refused, Error::Folder { .. }), "{refused}");
}

#[test]
fn a_folder_that_is_not_called_as_ours_is_not_touched() {
    let place = Place::new();
    let run = place.order(&of("fox.py")).expect("there is room");
    for command in ["--out_dir=/tmp", "--out_dir=out-x", "--out_dir=", "train"] {
        let run = Run { command: vec![command.to_owned()], ..run.clone() };
        assert!(own_folder(&run).is_err(), "{command}");
    }
    assert!(own_folder(&Run { order: None, ..run }).is_err(), "somebody's own");
}

#[test]
fn without_a_folder_it_says_how() {
    let place = Place::new();
    let foreman = Foreman::new(place.folder.path(), None, &place.store, Cards::default(), Bell::new().0);
    let training = foreman.training();
    assert!(
        training.unavailable.is_some_and(|why| why.contains("headroom serve --train FOLDER"))
            && training.configs.is_empty()
    );
    assert!(matches!(foreman.order(of("stories")), Err(Error::Unavailable(_))));
    let gone = place.folder.path().join("none");
    let foreman = Foreman::new(place.folder.path(), Some(&gone), &place.store, Cards::default(), Bell::new().0);
    assert!(foreman.training().unavailable.is_some_and(|why| why.contains("cannot be used")));
}

#[test]
fn cards_are_counted_as_cuda_counts_them() {
    let gpus: Vec<Gpu> = (0..3).map(made::gpu).collect();
    let seen = |visible| seen_by_cuda(&gpus, visible).iter().map(|gpu| gpu.index).collect::<Vec<_>>();
    assert_eq!(seen(None), [0, 1, 2]);
    assert_eq!(seen(Some("2, 0")), [2, 0]);
    assert_eq!(seen(Some("GPU-1,7,0")), [1]);
    assert_eq!(seen(Some("")), [0; 0]);
}
