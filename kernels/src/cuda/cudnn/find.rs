//! Which cuDNN a host has, and which one is taken.

use std::{fmt, path::Path};

use super::calls::{Handle, Loaded};
use crate::cuda::{
    CudaError, Device,
    libraries::{self, Absent, Refused, Wanted},
};

/// Names the library to take.
pub const VARIABLE: &str = "HEADROOM_CUDNN";
/// The oldest library that is taken: of older ones nobody has tried whether they take the graphs.
pub const NEEDED: Version = Version(91_000);

/// Where it is looked for. Its name does not tell for which CUDA it is: one for a newer driver fails as it begins.
static WANTED: Wanted = Wanted {
    name: "cuDNN",
    variable: VARIABLE,
    files: if cfg!(windows) { &["cudnn64_9.dll"] } else { &["libcudnn.so.9"] },
    wheels: if cfg!(windows) { &["nvidia/cudnn/bin"] } else { &["nvidia/cudnn/lib"] },
    packages: "nvidia-cudnn-cu13 for CUDA 13, nvidia-cudnn-cu12 for 12",
};

/// A version as the library counts: 91900 is 9.19.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0 / 10_000, self.0 / 100 % 100, self.0 % 100)
    }
}

/// The library that was found.
pub type Found = libraries::Found<Version>;

/// Opens a library, without a card.
///
/// # Errors
/// It is none, or too old.
pub fn open(library: &Path) -> Result<(Found, Loaded), Refused> {
    let refused = |reason: String| Refused { library: library.to_owned(), reason };
    let loaded = Loaded::open(library.as_os_str()).map_err(refused)?;
    let version = Version(loaded.version());
    if version < NEEDED {
        return Err(refused(format!("it is version {version}, and {NEEDED} or newer is needed")));
    }
    Ok((Found { name: WANTED.name, library: library.to_owned(), version }, loaded))
}

/// The library that the variable names, else the first that can be used of those in the usual places.
pub(super) fn find(device: &Device) -> Result<(Found, Handle), Absent> {
    libraries::find(&WANTED, |library| begin(device, library))
}

/// The library at a path, which has to be usable.
pub(super) fn named(device: &Device, library: &Path) -> Result<(Found, Handle), Absent> {
    begin(device, library).map_err(|refused| Absent::Named(&WANTED, refused))
}

/// Opens a library and has it begin on the card.
fn begin(device: &Device, library: &Path) -> Result<(Found, Handle), Refused> {
    let (found, loaded) = open(library)?;
    let refused = |error: CudaError| Refused { library: library.to_owned(), reason: error.to_string() };
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
