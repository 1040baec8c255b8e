//! Which cuBLASLt a host has, and which one is taken.

use std::{fmt, path::Path};

use super::calls::{Handle, Loaded};
use crate::cuda::{
    Device,
    driver::Driver,
    libraries::{self, Absent, Refused, Wanted},
};

/// Names the library to take.
pub const VARIABLE: &str = "HEADROOM_CUBLASLT";
/// The oldest library that is taken, the first of CUDA 12: of older ones nobody has tried whether they take a driver this
/// new.
pub const NEEDED: Version = Version(120_000);

/// Where it is looked for.
static WANTED: Wanted = Wanted {
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

/// A version as the library counts: 120803 is 12.8.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// 12 of 12.8.3: the CUDA that it is for.
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

/// The library that was found.
pub type Found = libraries::Found<Version>;

/// The library that the variable names, else the first that can be used of those in the usual places.
pub(super) fn find(device: &Device) -> Result<(Found, Handle), Absent> {
    libraries::find(&WANTED, |library| take(device, library))
}

/// The library at a path, which has to be usable.
pub(super) fn named(device: &Device, library: &Path) -> Result<(Found, Handle), Absent> {
    take(device, library).map_err(|refused| Absent::Named(&WANTED, refused))
}

/// Opens a library and has it begin on the card.
fn take(device: &Device, library: &Path) -> Result<(Found, Handle), Refused> {
    let refused = |reason: String| Refused { library: library.to_owned(), reason };
    let loaded = Loaded::open(library.as_os_str()).map_err(refused)?;
    let version = Version(loaded.version());
    if version < NEEDED {
        return Err(refused(format!("it is version {version}, and {NEEDED} or newer is needed")));
    }
    let driver = Driver::get().map_err(|error| refused(error.to_string()))?.version();
    if version.major() > u64::from(driver.0 / 1000) {
        return Err(refused(format!("it is for CUDA {}, and the driver is for CUDA {driver}", version.major())));
    }
    let handle = loaded.create(device).map_err(|error| refused(error.to_string()))?;
    Ok((Found { name: WANTED.name, library: library.to_owned(), version }, handle))
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
