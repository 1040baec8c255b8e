//! Log of the output of a run that the agent started, with a bounded size. A full file is rotated, and one previous
//! file is kept.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use headroom_agent_core::folders::private_file;

/// Size limit of each of the two files: about forty thousand printed iterations.
const BYTES_MAX: u64 = 4 << 20;

/// A rotating log file. Writes never fail, as a full disk must not end a run.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    /// `None` if the file is not writable at present.
    file: Option<File>,
    n_bytes: u64,
}

impl Log {
    /// Opens the log for appending.
    pub fn open(path: &Path) -> Self {
        let file = private_file().append(true).open(path).ok();
        let n_bytes = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |data| data.len());
        Self { path: path.to_owned(), file, n_bytes }
    }

    fn begin_anew(&mut self) {
        let mut before: OsString = self.path.clone().into();
        before.push(".1");
        // Windows cannot rename an open file.
        self.file = None;
        let renamed = fs::rename(&self.path, before);
        let mut options = private_file();
        let options = if renamed.is_ok() { options.append(true) } else { options.truncate(true) };
        self.file = options.open(&self.path).ok();
        self.n_bytes = 0;
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len() as u64;
        if self.n_bytes + n > BYTES_MAX {
            self.begin_anew();
        }
        // Write errors are dropped: the disk may have space again for the next line.
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
        assert!(names.iter().map(Vec::len).sum::<usize>() > 4 << 20, "the previous file is kept");
    }

    #[test]
    fn no_place_to_write_is_no_failure() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut log = Log::open(&folder.path().join("none/ab.log"));
        log.write_all(b"line\n").expect("it never fails");
    }
}
