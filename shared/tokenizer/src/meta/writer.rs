//! Writer of pickles with text and integers.

/// Writer of protocol 2, which every Python since 2.3 reads.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Starts a pickle.
    pub fn new() -> Self {
        Self { bytes: vec![0x80, 2] }
    }

    /// Writes a dict. `items` writes a key, its value, and so on.
    pub fn dict(&mut self, items: impl FnOnce(&mut Self)) {
        self.bytes.extend_from_slice(b"}(");
        items(self);
        self.bytes.push(b'u');
    }

    /// Writes a string.
    pub fn text(&mut self, text: &str) {
        let length = u32::try_from(text.len()).expect("a word or a character");
        self.bytes.push(b'X');
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Writes an integer.
    pub fn int(&mut self, int: u32) {
        if let Ok(byte) = u8::try_from(int) {
            self.bytes.extend_from_slice(&[b'K', byte]);
        } else if let Ok(short) = u16::try_from(int) {
            self.bytes.push(b'M');
            self.bytes.extend_from_slice(&short.to_le_bytes());
        } else {
            self.bytes.push(b'J');
            self.bytes.extend_from_slice(&i32::try_from(int).expect("ids are below 2^31").to_le_bytes());
        }
    }

    /// Returns the complete pickle.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }
}
