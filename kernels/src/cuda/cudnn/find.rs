//! Discovery and version check of cuDNN.

use std::{fmt, path::Path};

use super::calls::{Handle, LoadedCudnn};
use crate::cuda::{
    CudaError, Device,
    libraries::{self, LibraryError, LibrarySpec, RejectedLibrary},
};

/// Environment variable with the library's path.
pub const VARIABLE: &str = "HEADROOM_CUDNN";
/// Oldest supported version; older ones are untested with these graphs.
pub const NEEDED: Version = Version(91_000);

/// File names and locations of the library. The name does not contain the CUDA version; a library for a newer driver
/// fails to initialize.
static WANTED: LibrarySpec = LibrarySpec {
    name: "cuDNN",
    variable: VARIABLE,
    files: if cfg!(windows) { &["cudnn64_9.dll"] } else { &["libcudnn.so.9"] },
    wheels: if cfg!(windows) { &["nvidia/cudnn/bin"] } else { &["nvidia/cudnn/lib"] },
    packages: "nvidia-cudnn-cu13 for CUDA 13, nvidia-cudnn-cu12 for 12",
};

/// A version in the library's encoding: 91900 is 9.19.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0 / 10_000, self.0 / 100 % 100, self.0 % 100)
    }
}

/// A cuDNN library that was found.
pub type LoadedLibrary = libraries::LoadedLibrary<Version>;

/// Loads a library without a GPU.
///
/// # Errors
/// The file is not a cuDNN library, or it is too old.
pub fn open(library: &Path) -> Result<(LoadedLibrary, LoadedCudnn), RejectedLibrary> {
    let refused = |reason: String| RejectedLibrary { library: library.to_owned(), reason };
    let loaded = LoadedCudnn::open(library.as_os_str()).map_err(refused)?;
    let version = Version(loaded.version());
    if version < NEEDED {
        return Err(refused(format!("it is version {version}, and {NEEDED} or newer is needed")));
    }
    Ok((LoadedLibrary { name: WANTED.name, library: library.to_owned(), version }, loaded))
}

/// Loads the library named by the environment variable, or else the first usable one found.
pub(super) fn find(device: &Device) -> Result<(LoadedLibrary, Handle), LibraryError> {
    libraries::find(&WANTED, |library| begin(device, library))
}

/// Loads the library at a path; an unusable one is an error.
pub(super) fn named(device: &Device, library: &Path) -> Result<(LoadedLibrary, Handle), LibraryError> {
    begin(device, library).map_err(|refused| LibraryError::Named(&WANTED, refused))
}

/// Loads a library and initializes it on the GPU.
fn begin(device: &Device, library: &Path) -> Result<(LoadedLibrary, Handle), RejectedLibrary> {
    let (found, loaded) = open(library)?;
    let refused = |error: CudaError| RejectedLibrary { library: library.to_owned(), reason: error.to_string() };
    Ok((found, loaded.create(device).map_err(refused)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_nvidia_writes_them() {
        assert_eq!([91_900, 91_002, 90_100].map(|version| Version(version).to_string()), ["9.19.0", "9.10.2", "9.1.0"]);
        assert!(Version(90_800) < NEEDED && Version(91_002) > NEEDED);
    }
}
