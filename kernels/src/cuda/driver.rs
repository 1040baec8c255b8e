//! Whether there is a driver, which one, and whether it is new enough: asked before anything else, and once a process.

use std::{
    env,
    error::Error as _,
    ffi::{OsStr, OsString},
    fmt, mem,
    path::Path,
    sync::OnceLock,
};

use libloading::Library;

use super::{
    calls,
    error::CudaError,
    interface::{Basics, Functions, NO_DEVICE},
};

/// Names a library to open as the driver before any other: another build of it, or one for tests.
pub const VARIABLE: &str = "HEADROOM_CUDA";
/// The oldest CUDA whose driver takes PTX 8.4, which the kernels are compiled to.
pub const NEEDED: Version = Version(12_040);
/// The first release of a driver for it (CUDA 12.4 release notes, table 2).
pub const NEEDED_RELEASE: &str = "550";

/// The driver's library on a system that has one. A toolkit's `libcuda.so` is a stub for linking, not a driver, so the
/// name without a version is never opened.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// The one driver of this process.
static DRIVER: OnceLock<Driver> = OnceLock::new();

/// The newest CUDA that a driver knows, as the driver counts: 12040 is 12.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// A driver that is loaded, begun and new enough. There is one in a process, and it stays.
#[derive(Clone, Debug)]
pub struct Driver {
    version: Version,
    basics: Basics,
    functions: Functions,
}

impl Driver {
    /// The driver that [`VARIABLE`] names, else the system's.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`], [`CudaError::NotTheDriver`], [`CudaError::DriverTooOld`], [`CudaError::NoCard`].
    pub fn get() -> Result<&'static Self, CudaError> {
        Self::once(|| env::var_os(VARIABLE).filter(|named| !named.is_empty()))
    }

    /// The library at a path as the driver; for tests, which cannot set a variable of their own process. What this
    /// process opened first stays its driver.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn at(library: &Path) -> Result<&'static Self, CudaError> {
        Self::once(|| Some(library.into()))
    }

    fn once(named: impl FnOnce() -> Option<OsString>) -> Result<&'static Self, CudaError> {
        // What failed may be tried again: a driver can be installed, and a test has another one to offer.
        DRIVER.get().map_or_else(|| open(named().as_deref()).map(|driver| DRIVER.get_or_init(|| driver)), Ok)
    }

    /// The driver that [`Self::get`] or [`Self::at`] has opened.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`] where neither has.
    pub(super) fn opened() -> Result<&'static Self, CudaError> {
        DRIVER.get().ok_or_else(|| CudaError::NoDriver { reason: "none is open yet".to_owned() })
    }

    pub(super) const fn basics(&self) -> &Basics {
        &self.basics
    }

    pub(super) const fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The newest CUDA that it knows.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }
}

fn open(named: Option<&OsStr>) -> Result<Driver, CudaError> {
    let refused = |error: libloading::Error| match named {
        Some(named) => {
            CudaError::NotTheDriver { library: Path::new(named).display().to_string(), reason: told(&error) }
        }
        None => CudaError::NoDriver { reason: told(&error) },
    };
    // SAFETY: it is the driver by its name, or a person who starts the program names it to be run.
    let library = unsafe { Library::new(named.unwrap_or_else(|| OsStr::new(LIBRARY))) }.map_err(refused)?;
    // SAFETY: it is the driver, or a person says so.
    let basics = unsafe { Basics::find(&library) }.map_err(refused)?;
    let driver = initialized(&library, basics, refused);
    // A driver's threads may live on after a call, so it stays loaded, also where it cannot be used.
    mem::forget(library);
    driver
}

fn initialized(
    library: &Library,
    basics: Basics,
    refused: impl Fn(libloading::Error) -> CudaError,
) -> Result<Driver, CudaError> {
    let version = Version(calls::driver_version(&basics)?.unsigned_abs());
    // Asked before `cuInit`, which on such a driver may well succeed, and before functions that it lacks.
    if version < NEEDED {
        return Err(CudaError::DriverTooOld { found: version });
    }
    // SAFETY: as in `open`.
    let functions = unsafe { Functions::find(library) }.map_err(refused)?;
    match calls::init(&basics) {
        Err(CudaError::Call { code, .. }) if code.number == NO_DEVICE => Err(CudaError::NoCard),
        answer => answer.map(|()| Driver { version, basics, functions }),
    }
}

/// What the loader says, which it keeps a level below.
fn told(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_cuda_prints_them() {
        assert_eq!([12_040, 13_000, 11_080].map(|version| Version(version).to_string()), ["12.4", "13.0", "11.8"]);
        assert!(Version(12_030) < NEEDED && Version(13_000) > NEEDED);
    }
}
