//! Source text, read in chunks like Python's text mode: UTF-8, with every line ending converted to `\n`.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::Error;
use headroom_agent_core::utf8::{NotText, TextPosition, starts_as_utf16};

/// Size of a chunk in bytes.
const PIECE_BYTES: u64 = 1 << 20;
/// Maximum number of bytes read from a pipe or a device, whose text is kept in memory. Files are unlimited.
pub const MAX_PIPE_BYTES: u64 = 1 << 30;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Source of the text.
#[derive(Debug)]
pub enum Source {
    /// A file that can be read twice.
    File(PathBuf),
    /// A text in memory: the built-in corpus, or the contents of a pipe.
    Memory {
        /// Display name.
        name: String,
        /// The text's bytes.
        bytes: Vec<u8>,
    },
}

impl Source {
    /// Creates a source from a path. A pipe or device is read to its end now, because it cannot be read twice.
    ///
    /// # Errors
    /// Returns an error if the path cannot be read, is a directory, or is a pipe or device of more than
    /// [`MAX_PIPE_BYTES`].
    pub fn of_path(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let unreadable = |error| Error::Unreadable { name: name.clone(), error };
        let metadata = fs::metadata(path).map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(Error::Folder { name });
        }
        if metadata.is_file() {
            return Ok(Self::File(path.to_owned()));
        }
        let file = File::open(path).map_err(unreadable)?;
        let bytes = limited(file, MAX_PIPE_BYTES).map_err(unreadable)?;
        let bytes = bytes.ok_or_else(|| Error::Endless { name: name.clone() })?;
        Ok(Self::Memory { name, bytes })
    }

    /// Creates a source from standard input, which is read to its end now.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or has more than [`MAX_PIPE_BYTES`].
    pub fn of_stdin() -> Result<Self, Error> {
        let name = "standard input".to_owned();
        match limited(io::stdin().lock(), MAX_PIPE_BYTES) {
            Ok(Some(bytes)) => Ok(Self::Memory { name, bytes }),
            Ok(None) => Err(Error::Endless { name }),
            Err(error) => Err(Error::Unreadable { name, error }),
        }
    }

    /// Returns the display name.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Memory { name, .. } => name.clone(),
        }
    }

    /// Starts reading.
    pub fn pieces(&self) -> Result<Pieces<'_>, Error> {
        let reader: Box<dyn Read + '_> = match self {
            Self::File(path) => match File::open(path) {
                Ok(file) => Box::new(file),
                Err(error) => return Err(Error::Unreadable { name: self.name(), error }),
            },
            Self::Memory { bytes, .. } => Box::new(&bytes[..]),
        };
        Ok(Pieces::new(self.name(), reader, PIECE_BYTES))
    }
}

/// Reads up to `max_bytes`. Returns `None` if there are more.
///
/// It reads in chunks, so that a signal can end the program in between: one read of a device such as `/dev/zero` takes
/// time in proportion to the buffer's size.
fn limited(mut reader: impl Read, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    loop {
        let n_read = reader.by_ref().take(PIECE_BYTES).read_to_end(&mut bytes)?;
        if n_read == 0 {
            return Ok(Some(bytes));
        }
        if bytes.len() as u64 > max_bytes {
            return Ok(None);
        }
    }
}

/// Iterator over the chunks of a text.
pub struct Pieces<'a> {
    name: String,
    reader: Box<dyn Read + 'a>,
    piece_bytes: u64,
    /// Bytes that were read but not returned: the start of a character, or a `\r` that a `\n` may follow.
    bytes: Vec<u8>,
    text: String,
    place: TextPosition,
    begun: bool,
    is_utf16: bool,
}

impl<'a> Pieces<'a> {
    fn new(name: String, reader: Box<dyn Read + 'a>, piece_bytes: u64) -> Self {
        let (bytes, text) = (Vec::new(), String::new());
        Self { name, reader, piece_bytes, bytes, text, place: TextPosition::default(), begun: false, is_utf16: false }
    }

    /// Returns the next chunk, which is not empty, or `None` at the end.
    pub fn next(&mut self) -> Result<Option<&str>, Error> {
        self.text.clear();
        while self.text.is_empty() {
            let read = self.reader.by_ref().take(self.piece_bytes).read_to_end(&mut self.bytes);
            let n_read = read.map_err(|error: io::Error| Error::Unreadable { name: self.name.clone(), error })?;
            if !self.begun {
                self.begun = true;
                self.is_utf16 = starts_as_utf16(&self.bytes);
                if self.bytes.starts_with(BYTE_ORDER_MARK) {
                    self.bytes.drain(..BYTE_ORDER_MARK.len());
                }
            }
            self.take_text(n_read == 0)?;
            if n_read == 0 {
                break;
            }
        }
        Ok(Some(&*self.text).filter(|text| !text.is_empty()))
    }

    fn take_text(&mut self, is_end: bool) -> Result<(), Error> {
        let (text, is_broken) = match std::str::from_utf8(&self.bytes) {
            Ok(text) => (text, false),
            Err(error) => {
                let text = std::str::from_utf8(&self.bytes[..error.valid_up_to()]).unwrap_or_default();
                (text, is_end || error.error_len().is_some())
            }
        };
        if is_broken {
            self.place.pass(text);
            let byte = self.bytes[text.len()];
            let (name, is_utf16) = (self.name.clone(), self.is_utf16);
            return Err(Error::NotText(NotText { name, place: self.place, byte, is_utf16 }));
        }
        let text = if is_end { text } else { text.strip_suffix('\r').unwrap_or(text) };
        self.place.pass(text);
        for (i, line) in text.split('\r').enumerate() {
            // Both `\r\n` and a single `\r` become `\n`.
            let line = if i == 0 { line } else { line.strip_prefix('\n').unwrap_or(line) };
            self.text.push_str(if i == 0 { "" } else { "\n" });
            self.text.push_str(line);
        }
        let n_taken = text.len();
        self.bytes.drain(..n_taken);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the text for every chunk size.
    #[track_caller]
    fn check(bytes: &[u8], text: Result<&str, &str>) {
        for piece_bytes in 1..=bytes.len() as u64 + 1 {
            let mut pieces = Pieces::new("t.txt".to_owned(), Box::new(bytes), piece_bytes);
            let mut read = String::new();
            let end = loop {
                match pieces.next() {
                    Ok(Some(piece)) => read.push_str(piece),
                    Ok(None) => break Ok(read.as_str()),
                    Err(error) => break Err(error.to_string()),
                }
            };
            assert_eq!(end, text.map_err(ToOwned::to_owned), "{piece_bytes} bytes at once");
        }
    }

    #[test]
    fn a_text_is_the_same_however_it_is_cut() {
        check(b"", Ok(""));
        check("a\nä世🦀\n".as_bytes(), Ok("a\nä世🦀\n"));
        check(b"a\r\nb\rc\n\rd\r\r\ne\r", Ok("a\nb\nc\n\nd\n\ne\n"));
        check(b"\r\n", Ok("\n"));
    }

    #[test]
    fn a_byte_that_is_no_text_has_a_place() {
        check(b"a\r\nb\xFFc", Err("t.txt:2:2: this is not UTF-8 text (byte 0xFF)"));
        check("a\nä世".as_bytes().split_last().expect("bytes").1, Err("t.txt:2:2: this is not UTF-8 text (byte 0xE4)"));
    }

    #[test]
    fn a_pipe_is_read_up_to_its_bound() {
        for (n, max_bytes, want) in [(0, 3, Some(0)), (3, 3, Some(3)), (4, 3, None)] {
            let read = limited(&vec![b'a'; n][..], max_bytes).expect("memory");
            assert_eq!(read.map(|bytes| bytes.len()), want, "{n} of {max_bytes}");
        }
        assert_eq!(limited(io::repeat(b'a'), 3 * PIECE_BYTES).expect("memory"), None);
    }

    #[test]
    fn a_byte_order_mark_is_no_character() {
        let mut pieces = Pieces::new("t".to_owned(), Box::new(&b"\xEF\xBB\xBFab"[..]), 64);
        assert_eq!(pieces.next().expect("text"), Some("ab"));
    }
}
