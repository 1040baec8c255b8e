//! Disks that are full, read-only or gone, at each moment of a write: the checkpoint before stays, and the run may go on.

use std::{
    cell::Cell,
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::Path,
    rc::Rc,
};

use super::{
    super::{BEST, Checkpoint, CheckpointError, FILE, Store, Which, chosen, load, needed},
    TINY, assert_same, names, saved,
    trainer::Trainer,
};
use crate::train::files::{Disk, Folder, Links};

/// When the disk fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    Create,
    AfterBytes(usize),
    Sync,
    Rename,
    SyncNames,
    Link,
}

/// A disk that fails once.
struct Failing {
    disk: Disk,
    moment: Moment,
    kind: ErrorKind,
}

struct FailingFile {
    file: File,
    left: Rc<Cell<usize>>,
    kind: ErrorKind,
}

impl Failing {
    fn at(&self, moment: Moment) -> io::Result<()> {
        if self.moment == moment { Err(self.kind.into()) } else { Ok(()) }
    }
}

impl Folder for Failing {
    type File = FailingFile;

    fn create(&self, name: &str) -> io::Result<FailingFile> {
        self.at(Moment::Create)?;
        let left = if let Moment::AfterBytes(bytes) = self.moment { bytes } else { usize::MAX };
        Ok(FailingFile { file: self.disk.create(name)?, left: Rc::new(Cell::new(left)), kind: self.kind })
    }

    fn sync(&self, file: &mut FailingFile) -> io::Result<()> {
        self.at(Moment::Sync)?;
        self.disk.sync(&mut file.file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.at(Moment::Rename)?;
        self.disk.rename(from, to)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.at(Moment::SyncNames)?;
        self.disk.sync_names()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
}

impl Links for Failing {
    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.at(Moment::Link)?;
        self.disk.link(from, to)
    }
}

impl Write for FailingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.left.get());
        if n == 0 && !bytes.is_empty() {
            return Err(self.kind.into());
        }
        self.left.set(self.left.get() - n);
        self.file.write(&bytes[..n])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[test]
fn whatever_fails_the_old_checkpoint_stays_and_the_run_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut trainer = Trainer::new(TINY);
    let first = trainer.checkpoint();
    let file_bytes = usize::try_from(saved(dir.path(), &first).bytes).expect("small");
    let written = [0, 1, 8, 100, file_bytes / 2, file_bytes - 1].map(Moment::AfterBytes);
    trainer.step();
    let second = trainer.checkpoint();
    for moment in written.into_iter().chain([Moment::Create, Moment::Sync, Moment::Rename]) {
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::ReadOnlyFilesystem] {
            let store = Store::of(dir.path(), Failing { disk: Disk(dir.path().into()), moment, kind });
            let error = store.save(&second.meta, second.tensors()).expect_err("the disk fails");
            assert_eq!(error.is_disk_full(), kind != ErrorKind::ReadOnlyFilesystem, "{moment:?} {error}");
            assert!(error.to_string().ends_with("the one before it is whole") && error.hint().is_some(), "{error}");
            assert_eq!(names(dir.path()), [FILE], "{moment:?}");
            assert_same(&load(dir.path()).expect("a checkpoint"), &first);
        }
    }
    // There is space again.
    saved(dir.path(), &second);
    assert_same(&load(dir.path()).expect("a checkpoint"), &second);
}

/// A checkpoint of an iteration that was evaluated, or of one that was not.
fn evaluated(trainer: &mut Trainer, val_loss: Option<f64>) -> Checkpoint {
    trainer.step();
    let mut checkpoint = trainer.checkpoint();
    checkpoint.meta.state.val_loss = val_loss;
    checkpoint
}

#[test]
fn the_best_checkpoint_stays_whatever_fails() {
    let moments = [Moment::Link, Moment::Create, Moment::AfterBytes(100), Moment::Sync, Moment::Rename];
    for moment in moments {
        let dir = tempfile::tempdir().expect("a folder");
        let mut trainer = Trainer::new(TINY);
        let best = evaluated(&mut trainer, Some(1.5));
        saved(dir.path(), &best);
        let worse = evaluated(&mut trainer, None);
        let failing = Failing { disk: Disk(dir.path().into()), moment, kind: ErrorKind::StorageFull };
        Store::of(dir.path(), failing).save(&worse.meta, worse.tensors()).expect_err("the disk fails");
        let chosen = |which| load(&chosen(dir.path(), which).expect("a checkpoint")).expect("it is whole");
        assert_same(&chosen(Which::Best), &best);
        assert_same(&chosen(Which::Last), &best);
        // There is space again.
        saved(dir.path(), &worse);
        assert_same(&chosen(Which::Best), &best);
        assert_same(&chosen(Which::Last), &worse);
        assert_eq!(names(dir.path()), [BEST, FILE], "{moment:?}");
        // A better one is both.
        let better = evaluated(&mut trainer, Some(1.25));
        saved(dir.path(), &better);
        assert_eq!(names(dir.path()), [FILE]);
        assert_same(&chosen(Which::Best), &better);
    }
}

#[test]
fn a_run_that_replaces_another_keeps_nothing_of_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut trainer = Trainer::new(TINY);
    saved(dir.path(), &evaluated(&mut trainer, Some(1.5)));
    saved(dir.path(), &evaluated(&mut trainer, Some(2.5)));
    assert_eq!(names(dir.path()), [BEST, FILE]);
    let store = Store::open(dir.path()).expect("a folder");
    store.replace_other();
    assert_eq!(names(dir.path()), [BEST, FILE], "until there is something better to have");
    let first = evaluated(&mut trainer, Some(9.0));
    store.save(&first.meta, first.tensors()).expect("space");
    assert_eq!(names(dir.path()), [FILE]);
    assert_eq!(store.best(), None);
}

#[test]
fn a_folder_is_checked_before_a_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let checkpoint = Trainer::new(TINY).checkpoint();
    let all = needed(dir.path(), &checkpoint.meta).expect("small");
    let store = Store::open(dir.path()).expect("a folder");
    store.check(all, Some(all.total_bytes)).expect("room");
    store.check(all, None).expect("room, as far as is known");
    let error = store.check(all, Some(all.total_bytes - 1)).expect_err("a byte is missing");
    assert!(error.to_string().starts_with("cannot save checkpoints in ") && error.hint().is_some(), "{error}");
    // What is there already need not be written again.
    let written = store.save(&checkpoint.meta, checkpoint.tensors()).expect("space");
    assert_eq!(
        (written.bytes, all.total_bytes, all.missing_bytes),
        (all.file_bytes, 3 * all.file_bytes, all.total_bytes)
    );
    let rest = needed(dir.path(), &checkpoint.meta).expect("small");
    assert_eq!(rest.missing_bytes, 2 * all.file_bytes);
    drop(store);
    for moment in [Moment::Create, Moment::AfterBytes(0), Moment::Sync] {
        let kind = ErrorKind::ReadOnlyFilesystem;
        let store = Store::of(dir.path(), Failing { disk: Disk(dir.path().into()), moment, kind });
        let error = store.check(rest, None).expect_err("the disk fails");
        assert!(matches!(error, CheckpointError::Folder { .. }) && error.hint().is_some(), "{moment:?} {error}");
        assert_eq!(names(dir.path()), [FILE]);
    }
}

#[test]
fn an_error_at_the_very_end_leaves_one_of_the_two() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut trainer = Trainer::new(TINY);
    saved(dir.path(), &trainer.checkpoint());
    trainer.step();
    let second = trainer.checkpoint();
    let failing = Failing { disk: Disk(dir.path().into()), moment: Moment::SyncNames, kind: ErrorKind::Other };
    Store::of(dir.path(), failing).save(&second.meta, second.tensors()).expect_err("the disk fails");
    assert_same(&load(dir.path()).expect("a checkpoint"), &second);
}

#[test]
fn the_first_checkpoint_of_a_full_disk_says_that_there_is_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = Trainer::new(TINY).checkpoint();
    let failing =
        Failing { disk: Disk(dir.path().into()), moment: Moment::AfterBytes(10), kind: ErrorKind::StorageFull };
    let error = Store::of(dir.path(), failing).save(&first.meta, first.tensors()).expect_err("the disk is full");
    let said = error.to_string();
    assert!(said.starts_with("the disk is full: a checkpoint of ") && said.ends_with("there is none yet"), "{said}");
    assert!(error.hint().is_some_and(|hint| hint.starts_with("free ") && hint.contains(" on the disk of ")));
    assert_eq!(names(dir.path()), [""; 0]);
}

/// The system's own words for it: every write to that device finds no space.
#[cfg(target_os = "linux")]
#[test]
fn the_systems_full_disk_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = Trainer::new(TINY).checkpoint();
    saved(dir.path(), &first);
    let store = Store::open(dir.path()).expect("a folder");
    let unfinished = dir.path().join(crate::train::files::unfinished_name(FILE));
    std::os::unix::fs::symlink("/dev/full", unfinished).expect("a link");
    let error = store.save(&first.meta, first.tensors()).expect_err("no space");
    assert!(error.is_disk_full(), "{error}");
    assert_eq!(names(dir.path()), [FILE]);
    assert_same(&load(dir.path()).expect("a checkpoint"), &first);
    store.save(&first.meta, first.tensors()).expect("space again");
}

#[test]
fn a_folder_that_cannot_be_one_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("out");
    fs::write(&file, "").expect("space");
    for path in [file.clone(), file.join("below")] {
        let error = Store::open(Path::new(&path)).expect_err("a file is in the way");
        assert!(matches!(error, CheckpointError::Folder { .. }), "{error}");
    }
}
