//! Which file a name stands for: another program may have set the one aside that is open here, and begun another.

use std::fs::Metadata;

/// Two are equal where they are one file. Windows renames no file that is open, so that none changes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    #[cfg(unix)]
    device_and_inode: (u64, u64),
}

impl Identity {
    /// Of the file that the metadata are of.
    pub fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Self { device_and_inode: (metadata.dev(), metadata.ino()) }
        }
        #[cfg(not(unix))]
        {
            let _ = metadata;
            Self {}
        }
    }
}
