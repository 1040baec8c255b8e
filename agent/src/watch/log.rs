//! What a run of the agent's prints, in a file with a bound: where it is full it makes room for another, and the one
//! before is kept besides.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Bytes of each of the two files: some forty thousand printed iterations.
const BYTES_MAX: u64 = 4 << 20;

/// The file. Writing to it never fails: a full disk is no reason for a run to end.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    /// `None` where it cannot be written now.
    file: Option<File>,
    n_bytes: u64,
}

impl Log {
    /// Goes on behind what is there.
    pub fn open(path: &Path) -> Self {
        let file = File::options().append(true).create(true).open(path).ok();
        let n_bytes = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |data| data.len());
        Self { path: path.to_owned(), file, n_bytes }
    }

    fn begin_anew(&mut self) {
        let mut before: OsString = self.path.clone().into();
        before.push(".1");
        // Windows renames no file that is open.
        self.file = None;
        let renamed = fs::rename(&self.path, before);
        let mut options = File::options();
        let options = if renamed.is_ok() { options.append(true) } else { options.write(true).truncate(true) };
        self.file = options.create(true).open(&self.path).ok();
        self.n_bytes = 0;
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len() as u64;
        if self.n_bytes + n > BYTES_MAX {
            self.begin_anew();
        }
        // Room may be made on the disk: the next line is tried again.
        if self.file.as_mut().is_some_and(|file| file.write_all(bytes).is_ok()) {
            self.n_bytes += n;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_a_bound_and_keeps_the_newest() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ab.log");
        let line = vec![b'x'; 64 << 10];
        for _ in 0..200 {
            Log::open(&path).write_all(&line).expect("it never fails");
        }
        let mut log = Log::open(&path);
        log.write_all(b"newest\n").expect("it never fails");
        let names = ["ab.log", "ab.log.1"].map(|name| fs::read(folder.path().join(name)).expect("a file"));
        assert!(names[0].ends_with(b"newest\n") && names.iter().all(|file| file.len() as u64 <= BYTES_MAX));
        assert!(names.iter().map(Vec::len).sum::<usize>() > 4 << 20, "the one before is kept");
    }

    #[test]
    fn no_place_to_write_is_no_failure() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = Log::open(&folder.path().join("none/ab.log"));
        log.write_all(b"line\n").expect("it never fails");
    }
}
