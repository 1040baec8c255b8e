//! Identity of the open file. Another program may have set it aside and created a new file with the same name.

use std::fs::Metadata;

/// Identity of a file. Windows does not rename open files, so all identities are equal there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    #[cfg(unix)]
    device_and_inode: (u64, u64),
}

impl Identity {
    /// Returns the identity of the file with this metadata.
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
