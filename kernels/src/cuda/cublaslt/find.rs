//! Discovery and version check of cuBLASLt.

use std::{fmt, path::Path};

use super::calls::{Handle, LoadedCublasLt};
use crate::cuda::{
    Device,
    driver::Driver,
    libraries::{self, LibraryError, LibrarySpec, RejectedLibrary},
};

/// Environment variable with the library's path.
pub const VARIABLE: &str = "HEADROOM_CUBLASLT";
/// Oldest supported version, the first of CUDA 12. Older versions are untested with drivers this new.
pub const NEEDED: Version = Version(120_000);

/// File names and locations of the library.
static WANTED: LibrarySpec = LibrarySpec {
    name: "cuBLASLt",
    variable: VARIABLE,
    files: if cfg!(windows) {
        &["cublasLt64_13.dll", "cublasLt64_12.dll"]
    } else {
        &["libcublasLt.so.13", "libcublasLt.so.12"]
    },
    wheels: if cfg!(windows) {
        &["nvidia/cu13/bin/x86_64", "nvidia/cublas/bin"]
    } else {
        &["nvidia/cu13/lib", "nvidia/cublas/lib"]
    },
    packages: "nvidia-cublas for CUDA 13, nvidia-cublas-cu12 for 12",
};

/// A version in the library's encoding: 120803 is 12.8.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// Major version, which is that of CUDA: 12 in 12.8.3.
    #[must_use]
    pub const fn major(self) -> u64 {
        self.0 / 10_000
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major(), self.0 / 100 % 100, self.0 % 100)
    }
}

/// A cuBLASLt library that was found.
pub type LoadedLibrary = libraries::LoadedLibrary<Version>;

/// Loads the library named by the environment variable, or else the first usable one found.
pub(super) fn find(device: &Device) -> Result<(LoadedLibrary, Handle), LibraryError> {
    libraries::find(&WANTED, |library| take(device, library))
}

/// Loads the library at a path; an unusable one is an error.
pub(super) fn named(device: &Device, library: &Path) -> Result<(LoadedLibrary, Handle), LibraryError> {
    take(device, library).map_err(|refused| LibraryError::Named(&WANTED, refused))
}

/// Loads a library, checks its version and initializes it on the GPU.
fn take(device: &Device, library: &Path) -> Result<(LoadedLibrary, Handle), RejectedLibrary> {
    let refused = |reason: String| RejectedLibrary { library: library.to_owned(), reason };
    let loaded = LoadedCublasLt::open(library.as_os_str()).map_err(refused)?;
    let version = Version(loaded.version());
    if version < NEEDED {
        return Err(refused(format!("it is version {version}, and {NEEDED} or newer is needed")));
    }
    let driver = Driver::get().map_err(|error| refused(error.to_string()))?.version();
    if version.major() > u64::from(driver.0 / 1000) {
        return Err(refused(format!("it is for CUDA {}, and the driver is for CUDA {driver}", version.major())));
    }
    let handle = loaded.create(device).map_err(|error| refused(error.to_string()))?;
    Ok((LoadedLibrary { name: WANTED.name, library: library.to_owned(), version }, handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_nvidia_writes_them() {
        assert_eq!([120_803, 130_000, 110_304].map(|v| Version(v).to_string()), ["12.8.3", "13.0.0", "11.3.4"]);
        assert!(Version(110_304) < NEEDED && Version(130_001).major() == 13);
    }
}
