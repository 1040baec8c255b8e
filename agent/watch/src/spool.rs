//! Spool: a copy of a command's output in the directory of its run. Relays write it. If the watcher is killed, another
//! watcher reads it to continue.
//!
//! Each stream has segments named by the offset of their first byte, a lock held by its relay, and a lock shared by its
//! relays and guards. A segment consists of frames: time and length, little-endian, followed by the bytes. A frame
//! without bytes ends the stream.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use super::tee::{Stream, StreamCopy};
use headroom_agent_core::folders::private_file;

/// Bytes of output per segment.
const SEGMENT_BYTES: u64 = 1 << 20;
/// Limit of segments per stream: room for about a million printed iterations before a watcher reads them.
const SEGMENTS_MAX: usize = 64;
/// Limit of output bytes per frame.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// Size of a frame's header: Unix milliseconds in 8 bytes, and the length in 4.
const HEADER_BYTES: usize = 12;

const fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Out => "out",
        Stream::Err => "err",
    }
}

/// Parses the name of a stream.
pub fn stream(text: &str) -> Option<Stream> {
    [Stream::Out, Stream::Err].into_iter().find(|stream| name(*stream) == text)
}

/// Name of a stream, for a relay's command line.
pub const fn argument(stream: Stream) -> &'static str {
    name(stream)
}

fn lock_path(folder: &Path, stream: Stream) -> PathBuf {
    folder.join(format!("{}.lock", name(stream)))
}

fn segment_path(folder: &Path, stream: Stream, start: u64) -> PathBuf {
    folder.join(format!("{}-{start:020}", name(stream)))
}

/// Start offsets of a stream's segments, in order.
fn segments(folder: &Path, stream: Stream) -> Vec<u64> {
    let start = |entry: fs::DirEntry| {
        let name_of = entry.file_name();
        name_of.to_str()?.strip_prefix(name(stream))?.strip_prefix('-')?.parse().ok()
    };
    let mut starts: Vec<u64> = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(start).collect();
    starts.sort_unstable();
    starts
}

/// Lock that the relays of a stream and their guards share.
pub fn stream_lock_path(folder: &Path, stream: Stream) -> PathBuf {
    folder.join(format!("{}.guard", name(stream)))
}

/// Whether a relay still writes a stream, or will.
pub fn is_written(folder: &Path, stream: Stream) -> bool {
    // Open for writing: a network file system requires it for an exclusive lock.
    let lock = File::options().read(true).write(true).open(stream_lock_path(folder, stream));
    lock.is_ok_and(|lock| is_refused(&lock.try_lock())) || is_relayed(folder, stream)
}

/// Whether a relay writes a stream.
pub fn is_relayed(folder: &Path, stream: Stream) -> bool {
    // A shared lock, so that processes that check at the same time do not take each other for the relay.
    File::open(lock_path(folder, stream)).is_ok_and(|lock| is_refused(&lock.try_lock_shared()))
}

fn is_refused(lock: &Result<(), fs::TryLockError>) -> bool {
    matches!(lock, Err(fs::TryLockError::WouldBlock))
}

/// Offset after the output that a stream's segments contain.
fn end(folder: &Path, stream: Stream) -> u64 {
    let Some(last) = segments(folder, stream).last().copied() else { return 0 };
    let Ok(file) = File::open(segment_path(folder, stream, last)) else { return last };
    let mut reader = Reader { segment: Some((last, file)), ..Reader::new(folder, stream) };
    let mut end = last;
    while let Some((_, bytes, _)) = reader.frame(true) {
        end += bytes.len() as u64;
    }
    end
}

/// Removes segments before `offset`, which the history contains. Keeps the first segment, which has the config, and the
/// one before the offset, in which a line may begin.
pub fn trim(folder: &Path, stream: Stream, offset: u64) {
    let starts = segments(folder, stream);
    for (i, start) in starts.iter().enumerate().skip(1) {
        if starts.get(i + 2).is_none_or(|later| *later > offset) {
            return;
        }
        // A remaining segment is harmless.
        let _ = fs::remove_file(segment_path(folder, stream, *start));
    }
}

/// Writer of a stream. Errors do not end it: output that cannot be written becomes a gap.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    stream: Stream,
    /// `None` if the next frame starts a new segment.
    segment: Option<File>,
    segment_bytes: u64,
    #[expect(dead_code, reason = "held")]
    lock: File,
}

impl Writer {
    /// Creates the spool of a stream.
    ///
    /// # Errors
    /// The directory is missing, or another process writes the stream.
    pub fn new(folder: &Path, stream: Stream) -> io::Result<Self> {
        let lock = private_file().open(lock_path(folder, stream))?;
        lock.try_lock()?;
        Ok(Self { folder: folder.to_owned(), stream, segment: None, segment_bytes: 0, lock })
    }

    /// Offset after the output of earlier writers.
    pub fn end(&self) -> u64 {
        end(&self.folder, self.stream)
    }

    /// Appends a copy of output.
    pub fn add(&mut self, time_ms: u64, copied: &StreamCopy) {
        if copied.gap {
            self.segment = None;
        }
        let start = copied.end.saturating_sub(copied.bytes.len() as u64);
        for (i, bytes) in copied.bytes.chunks(FRAME_BYTES_MAX).enumerate() {
            self.frame(time_ms, start + (i * FRAME_BYTES_MAX) as u64, bytes);
        }
    }

    /// Marks the end of the stream.
    pub fn finish(mut self, time_ms: u64, end: u64) {
        self.frame(time_ms, end, &[]);
    }

    fn frame(&mut self, time_ms: u64, start: u64, bytes: &[u8]) {
        if self.segment.is_none() || self.segment_bytes >= SEGMENT_BYTES {
            self.segment = private_file().truncate(true).open(segment_path(&self.folder, self.stream, start)).ok();
            self.segment_bytes = 0;
            let starts = segments(&self.folder, self.stream);
            if starts.len() > SEGMENTS_MAX {
                let _ = fs::remove_file(segment_path(&self.folder, self.stream, starts[1]));
            }
        }
        let mut frame = Vec::with_capacity(HEADER_BYTES + bytes.len());
        frame.extend_from_slice(&time_ms.to_le_bytes());
        frame.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes());
        frame.extend_from_slice(bytes);
        self.segment_bytes += bytes.len() as u64;
        if self.segment.as_mut().is_none_or(|segment| segment.write_all(&frame).is_err()) {
            self.segment = None;
        }
    }
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum SpoolRead {
    /// Output, and the time at which it was written.
    Output(u64, StreamCopy),
    /// No output yet; the relay is still active.
    Later,
    /// End of the stream.
    End,
}

/// Reader of a stream from its beginning, during or after writing.
#[derive(Debug)]
pub struct Reader {
    folder: PathBuf,
    stream: Stream,
    segment: Option<(u64, File)>,
    /// Position of the next frame in the segment.
    at: u64,
    /// Offset of the next byte of output.
    offset: u64,
    has_gap: bool,
    /// End time of the stream, or else the time of its newest output.
    pub time_ms: u64,
    has_ended: bool,
}

impl Reader {
    /// Creates a reader of a stream.
    pub fn new(folder: &Path, stream: Stream) -> Self {
        let folder = folder.to_owned();
        Self { folder, stream, segment: None, at: 0, offset: 0, has_gap: false, time_ms: 0, has_ended: false }
    }

    /// Reads the next output.
    pub fn next(&mut self) -> SpoolRead {
        loop {
            if self.has_ended {
                return SpoolRead::End;
            }
            // Checked before reading, so that the last output of a relay is not missed.
            let is_written = is_written(&self.folder, self.stream);
            if self.segment.is_none() && !self.open_after(None) {
                self.has_ended = !is_written;
                return if is_written { SpoolRead::Later } else { SpoolRead::End };
            }
            let later = self.segment.as_ref().is_some_and(|(start, _)| self.later_than(*start).is_some());
            match self.frame(later || !is_written) {
                Some((time_ms, bytes, is_whole)) => {
                    self.time_ms = time_ms;
                    if bytes.is_empty() && is_whole {
                        self.has_ended = true;
                        continue;
                    }
                    if !bytes.is_empty() {
                        self.offset += bytes.len() as u64;
                        let gap = std::mem::take(&mut self.has_gap);
                        return SpoolRead::Output(time_ms, StreamCopy { gap, bytes, end: self.offset });
                    }
                }
                None if later => {
                    let start = self.segment.as_ref().map(|(start, _)| *start);
                    self.open_after(start);
                }
                None if is_written => return SpoolRead::Later,
                None => self.has_ended = true,
            }
        }
    }

    fn later_than(&self, start: u64) -> Option<u64> {
        segments(&self.folder, self.stream).into_iter().find(|later| *later > start)
    }

    fn open_after(&mut self, start: Option<u64>) -> bool {
        let next = match start {
            Some(start) => self.later_than(start),
            None => segments(&self.folder, self.stream).first().copied(),
        };
        let Some(next) = next else { return false };
        let Ok(file) = File::open(segment_path(&self.folder, self.stream, next)) else { return false };
        self.has_gap |= next != self.offset;
        (self.segment, self.at, self.offset) = (Some((next, file)), 0, next);
        true
    }

    /// Reads the next frame, and whether it is complete. If no more can follow (`is_last`), returns the existing part
    /// of an incomplete frame.
    fn frame(&mut self, is_last: bool) -> Option<(u64, Vec<u8>, bool)> {
        let (_, file) = self.segment.as_mut()?;
        file.seek(SeekFrom::Start(self.at)).ok()?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header).ok()?;
        let (time, length) = header.split_at(8);
        let time_ms = u64::from_le_bytes(time.try_into().ok()?);
        let length = usize::try_from(u32::from_le_bytes(length.try_into().ok()?)).ok()?;
        if length > FRAME_BYTES_MAX {
            return None;
        }
        let mut bytes = Vec::with_capacity(length);
        file.take(length as u64).read_to_end(&mut bytes).ok()?;
        let is_whole = bytes.len() == length;
        if !is_whole && (!is_last || bytes.is_empty()) {
            return None;
        }
        self.at += (HEADER_BYTES + bytes.len()) as u64;
        Some((time_ms, bytes, is_whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(end: u64, bytes: &[u8]) -> StreamCopy {
        StreamCopy { gap: false, bytes: bytes.to_vec(), end }
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    #[test]
    fn reader_follows_writer() {
        let folder = folder();
        let mut reader = Reader::new(folder.path(), Stream::Out);
        let mut writer = Writer::new(folder.path(), Stream::Out).expect("a spool");
        assert_eq!(reader.next(), SpoolRead::Later);
        writer.add(7, &copied(3, b"abc"));
        assert_eq!(reader.next(), SpoolRead::Output(7, copied(3, b"abc")));
        assert_eq!(reader.next(), SpoolRead::Later);
        writer.add(8, &copied(5, b"de"));
        writer.finish(9, 5);
        assert_eq!(reader.next(), SpoolRead::Output(8, copied(5, b"de")));
        assert_eq!((reader.next(), reader.time_ms), (SpoolRead::End, 9));
        assert_eq!(Reader::new(folder.path(), Stream::Err).next(), SpoolRead::End, "the stream does not exist");
    }

    #[test]
    fn stream_of_a_killed_writer_ends_with_what_it_wrote() {
        let folder = folder();
        let mut writer = Writer::new(folder.path(), Stream::Err).expect("a spool");
        writer.add(7, &copied(3, b"abc"));
        writer.add(8, &copied(6, b"def"));
        drop(writer);
        let path = segment_path(folder.path(), Stream::Err, 0);
        let bytes = fs::read(&path).expect("a segment");
        for cut in 0..=bytes.len() {
            fs::write(&path, &bytes[..cut]).expect("a segment");
            let mut reader = Reader::new(folder.path(), Stream::Err);
            let mut read = vec![];
            while let SpoolRead::Output(_, copied) = reader.next() {
                read.extend(copied.bytes);
            }
            assert_eq!(reader.next(), SpoolRead::End);
            assert!(b"abcdef".starts_with(&read[..]) && read.len() + 2 * HEADER_BYTES >= cut, "{cut}");
        }
    }

    #[test]
    fn segments_that_history_has_are_removed() {
        let folder = folder();
        let mut writer = Writer::new(folder.path(), Stream::Out).expect("a spool");
        let piece = vec![b'x'; FRAME_BYTES_MAX];
        let n = 10 * SEGMENT_BYTES;
        for end in (1..=n / piece.len() as u64).map(|i| i * piece.len() as u64) {
            writer.add(1, &copied(end, &piece));
        }
        assert_eq!(segments(folder.path(), Stream::Out).len(), 10);
        trim(folder.path(), Stream::Out, 5 * SEGMENT_BYTES + 1);
        let left: Vec<u64> = [0, 4, 5, 6, 7, 8, 9].map(|i| i * SEGMENT_BYTES).to_vec();
        assert_eq!(segments(folder.path(), Stream::Out), left);
        // The gap is reported, and offsets remain those of the output.
        let mut reader = Reader::new(folder.path(), Stream::Out);
        let mut gaps = vec![];
        while let SpoolRead::Output(_, copied) = reader.next() {
            if copied.gap {
                gaps.push(copied.end - copied.bytes.len() as u64);
            }
        }
        assert_eq!(gaps, [4 * SEGMENT_BYTES]);
        writer.finish(2, n);
    }

    #[test]
    fn spool_has_a_bound_and_keeps_the_first_and_the_newest() {
        let folder = folder();
        let mut writer = Writer::new(folder.path(), Stream::Out).expect("a spool");
        for i in 1..=100 {
            writer.segment = None;
            writer.add(1, &copied(i, b"x"));
        }
        let starts = segments(folder.path(), Stream::Out);
        assert_eq!((starts.len(), starts[0], starts.last()), (SEGMENTS_MAX, 0, Some(&99)));
    }
}
