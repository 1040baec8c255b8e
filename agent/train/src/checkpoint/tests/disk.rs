//! Tests of full, read-only or missing disks at each stage of a write: the previous checkpoint stays intact, and the
//! run may continue.

use std::{
    cell::Cell,
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::Path,
    rc::Rc,
};

use super::{
    super::{BEST, Checkpoint, CheckpointChoice, CheckpointError, FILE, Store, chosen, load, needed},
    TINY, assert_same, names, saved,
    trainer::Trainer,
};
use crate::files::{Disk, Folder, Links};

/// Stage at which the disk fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FailureStage {
    Create,
    AfterBytes(usize),
    Sync,
    Rename,
    SyncNames,
    Link,
    /// The directory has this many files, and the file system no further inode.
    FilesAtOnce(usize),
}

/// A disk that fails at one stage.
struct FailingDisk {
    disk: Disk,
    moment: FailureStage,
    kind: ErrorKind,
}

struct FailingFile {
    file: File,
    left: Rc<Cell<usize>>,
    kind: ErrorKind,
}

impl FailingDisk {
    fn at(&self, moment: FailureStage) -> io::Result<()> {
        if self.moment == moment { Err(self.kind.into()) } else { Ok(()) }
    }

    /// Fails if another file exceeds the number of inodes. A file system may count each name of a file, as tmpfs does.
    fn takes_another(&self) -> io::Result<()> {
        match self.moment {
            FailureStage::FilesAtOnce(n_max) if names(&self.disk.dir).len() >= n_max => Err(self.kind.into()),
            _ => Ok(()),
        }
    }
}

impl Folder for FailingDisk {
    type File = FailingFile;

    fn create(&self, name: &str) -> io::Result<FailingFile> {
        self.at(FailureStage::Create)?;
        self.takes_another()?;
        let left = if let FailureStage::AfterBytes(bytes) = self.moment { bytes } else { usize::MAX };
        Ok(FailingFile { file: self.disk.create(name)?, left: Rc::new(Cell::new(left)), kind: self.kind })
    }

    fn sync(&self, file: &mut FailingFile) -> io::Result<()> {
        self.at(FailureStage::Sync)?;
        self.disk.sync(&mut file.file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.at(FailureStage::Rename)?;
        self.disk.rename(from, to)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.at(FailureStage::SyncNames)?;
        self.disk.sync_names()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
}

impl Links for FailingDisk {
    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.at(FailureStage::Link)?;
        self.takes_another()?;
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
fn failed_save_keeps_old_checkpoint_and_run_continues() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut trainer = Trainer::new(TINY);
    let first = trainer.checkpoint();
    let file_bytes = usize::try_from(saved(dir.path(), &first).bytes).expect("small");
    let written = [0, 1, 8, 100, file_bytes / 2, file_bytes - 1].map(FailureStage::AfterBytes);
    trainer.step();
    let second = trainer.checkpoint();
    for moment in written.into_iter().chain([FailureStage::Create, FailureStage::Sync, FailureStage::Rename]) {
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::ReadOnlyFilesystem] {
            let store = Store::of(dir.path(), FailingDisk { disk: Disk::new(dir.path()), moment, kind });
            let error = store.save(&second.meta, second.tensors()).expect_err("the disk fails");
            assert_eq!(error.is_disk_full(), kind != ErrorKind::ReadOnlyFilesystem, "{moment:?} {error}");
            assert!(error.to_string().ends_with("the previous one is intact") && error.hint().is_some(), "{error}");
            assert_eq!(names(dir.path()), [FILE], "{moment:?}");
            assert_same(&load(dir.path()).expect("a checkpoint"), &first);
        }
    }
    // The disk has space again.
    saved(dir.path(), &second);
    assert_same(&load(dir.path()).expect("a checkpoint"), &second);
}

/// Checkpoint of the next iteration, with or without an evaluation.
fn evaluated(trainer: &mut Trainer, val_loss: Option<f64>) -> Checkpoint {
    trainer.step();
    let mut checkpoint = trainer.checkpoint();
    checkpoint.meta.state.val_loss = val_loss;
    checkpoint
}

#[test]
fn the_best_checkpoint_stays_whatever_fails() {
    let moments = [
        FailureStage::Link,
        FailureStage::Create,
        FailureStage::AfterBytes(100),
        FailureStage::Sync,
        FailureStage::Rename,
    ];
    for moment in moments {
        let dir = tempfile::tempdir().expect("a folder");
        let mut trainer = Trainer::new(TINY);
        let best = evaluated(&mut trainer, Some(1.5));
        saved(dir.path(), &best);
        let worse = evaluated(&mut trainer, None);
        let failing = FailingDisk { disk: Disk::new(dir.path()), moment, kind: ErrorKind::StorageFull };
        Store::of(dir.path(), failing).save(&worse.meta, worse.tensors()).expect_err("the disk fails");
        let chosen = |which| load(&chosen(dir.path(), which).expect("a checkpoint")).expect("it is whole");
        assert_same(&chosen(CheckpointChoice::Best), &best);
        assert_same(&chosen(CheckpointChoice::Last), &best);
        // The disk has space again.
        saved(dir.path(), &worse);
        assert_same(&chosen(CheckpointChoice::Best), &best);
        assert_same(&chosen(CheckpointChoice::Last), &worse);
        assert_eq!(names(dir.path()), [BEST, FILE], "{moment:?}");
        // A better checkpoint is both the last and the best.
        let better = evaluated(&mut trainer, Some(1.25));
        saved(dir.path(), &better);
        assert_eq!(names(dir.path()), [FILE]);
        assert_same(&chosen(CheckpointChoice::Best), &better);
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
    assert_eq!(names(dir.path()), [BEST, FILE], "until a better checkpoint exists");
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
    store.check().expect("it can be written to");
    all.check(dir.path(), Some(all.total_bytes), Some(all.file_bytes)).expect("room");
    all.check(dir.path(), None, None).expect("room, as far as is known");
    let error = all.check(dir.path(), None, Some(all.file_bytes - 1)).expect_err("a file is too long");
    assert!(matches!(error, CheckpointError::FileLimit { .. }) && error.is_input_output(), "{error}");
    assert!(error.to_string().ends_with("(ulimit -f)") && error.hint().is_some(), "{error}");
    let error = all.check(dir.path(), Some(all.total_bytes - 1), None).expect_err("a byte is missing");
    assert!(error.to_string().starts_with("cannot save checkpoints in ") && error.hint().is_some(), "{error}");
    for name in [FILE, BEST] {
        fs::create_dir(dir.path().join(name)).expect("a folder");
        let error = store.check().expect_err("a directory");
        assert!(error.to_string().contains(&format!("{name} is a directory")), "{error}");
        fs::remove_dir(dir.path().join(name)).expect("removed");
    }
    // Existing files do not count as missing space.
    let written = store.save(&checkpoint.meta, checkpoint.tensors()).expect("space");
    assert_eq!(
        (written.bytes, all.total_bytes, all.missing_bytes),
        (all.file_bytes, 3 * all.file_bytes, all.total_bytes)
    );
    let rest = needed(dir.path(), &checkpoint.meta).expect("small");
    assert_eq!(rest.missing_bytes, 2 * all.file_bytes);
    drop(store);
    for moment in [FailureStage::Create, FailureStage::AfterBytes(0), FailureStage::Sync] {
        let kind = ErrorKind::ReadOnlyFilesystem;
        let store = Store::of(dir.path(), FailingDisk { disk: Disk::new(dir.path()), moment, kind });
        let error = store.check().expect_err("the disk fails");
        assert!(matches!(error, CheckpointError::Folder { .. }) && error.hint().is_some(), "{moment:?} {error}");
        assert_eq!(names(dir.path()), [FILE]);
    }
}

#[test]
fn folder_without_inodes_for_all_checkpoints_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = |n_max| {
        let moment = FailureStage::FilesAtOnce(n_max);
        Store::of(dir.path(), FailingDisk { disk: Disk::new(dir.path()), moment, kind: ErrorKind::StorageFull })
    };
    let mut trainer = Trainer::new(TINY);
    let losses = [Some(1.5), Some(2.5), Some(2.0), None, Some(1.25), Some(3.0)];
    for (n_present, missing) in [(0, "3 more files"), (1, "2 more files"), (2, "1 more file")] {
        assert_eq!(names(dir.path()).len(), n_present);
        for n_max in n_present..3 {
            let error = store(n_max).check().expect_err("there are too few inodes");
            let said = error.to_string();
            assert!(said.starts_with("cannot save checkpoints in ") && error.hint().is_some(), "{said}");
            assert!(said.contains(&format!("the file system has no inodes for {missing}: ")), "{said}");
            assert_eq!(names(dir.path()).len(), n_present, "nothing is left behind");
        }
        store(3).check().expect("there are enough");
        let checkpoint = evaluated(&mut trainer, losses[n_present]);
        store(3).save(&checkpoint.meta, checkpoint.tensors()).expect("it was checked");
    }
    // The check promises every later save.
    for loss in losses {
        let checkpoint = evaluated(&mut trainer, loss);
        store(3).save(&checkpoint.meta, checkpoint.tensors()).expect("it was checked");
    }
}

#[test]
fn an_error_at_the_very_end_leaves_one_of_the_two() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut trainer = Trainer::new(TINY);
    saved(dir.path(), &trainer.checkpoint());
    trainer.step();
    let second = trainer.checkpoint();
    let failing = FailingDisk { disk: Disk::new(dir.path()), moment: FailureStage::SyncNames, kind: ErrorKind::Other };
    Store::of(dir.path(), failing).save(&second.meta, second.tensors()).expect_err("the disk fails");
    assert_same(&load(dir.path()).expect("a checkpoint"), &second);
}

#[test]
fn the_first_checkpoint_of_a_full_disk_says_that_there_is_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = Trainer::new(TINY).checkpoint();
    let failing =
        FailingDisk { disk: Disk::new(dir.path()), moment: FailureStage::AfterBytes(10), kind: ErrorKind::StorageFull };
    let error = Store::of(dir.path(), failing).save(&first.meta, first.tensors()).expect_err("the disk is full");
    let said = error.to_string();
    assert!(said.contains(": the disk is full; ") && said.ends_with("there is no previous one"), "{said}");
    assert!(
        error
            .hint()
            .map(|hint| hint.to_string())
            .is_some_and(|hint| hint.starts_with("free ") && hint.contains(" on the disk of "))
    );
    assert_eq!(names(dir.path()), [""; 0]);
}

/// Checks the system's actual error: every write to `/dev/full` fails without space.
#[cfg(target_os = "linux")]
#[test]
fn the_systems_full_disk_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = Trainer::new(TINY).checkpoint();
    saved(dir.path(), &first);
    let full = Disk::creating(dir.path(), |path| {
        File::create(path)?;
        File::options().write(true).open("/dev/full")
    });
    let full = Store::of(dir.path(), full);
    let error = full.save(&first.meta, first.tensors()).expect_err("no space");
    assert!(error.is_disk_full(), "{error}");
    assert_eq!(names(dir.path()), [FILE]);
    assert_same(&load(dir.path()).expect("a checkpoint"), &first);
    saved(dir.path(), &first);
}

/// A link at the place of an unfinished file is replaced, not followed.
#[cfg(unix)]
#[test]
fn a_checkpoint_is_not_written_through_a_link() {
    let dir = tempfile::tempdir().expect("a folder");
    let other = dir.path().join("other");
    fs::write(&other, "kept").expect("space");
    let unfinished = dir.path().join(crate::files::unfinished_name(FILE));
    let store = Store::open(dir.path()).expect("a folder");
    std::os::unix::fs::symlink(&other, unfinished).expect("a link");
    let first = Trainer::new(TINY).checkpoint();
    store.save(&first.meta, first.tensors()).expect("space");
    assert_eq!(fs::read(&other).expect("it is there"), b"kept");
    assert_same(&load(dir.path()).expect("a checkpoint"), &first);
}

#[test]
fn a_folder_that_cannot_be_one_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("out");
    fs::write(&file, "").expect("space");
    for path in [file.clone(), file.join("below")] {
        let error = Store::open(Path::new(&path)).expect_err("a file is in the way");
        assert!(matches!(error, CheckpointError::Folder { .. }), "{error}");
    }
}
