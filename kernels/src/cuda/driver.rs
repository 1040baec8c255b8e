//! Finds, loads and checks the CUDA driver, once per process.

use std::{
    env,
    error::Error as _,
    ffi::{OsStr, OsString},
    mem,
    path::Path,
    sync::OnceLock,
};

use libloading::Library;

use super::{
    error::CudaError,
    interface::{Basics, Functions, NO_DEVICE},
    status::answer,
};

pub use super::requirements::{NEEDED, NEEDED_RELEASE, VARIABLE, Version};

/// File name of the installed driver library. A toolkit's `libcuda.so` is a stub for linking, not a driver, so the
/// unversioned name is never opened.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// The driver of this process.
static DRIVER: OnceLock<Driver> = OnceLock::new();

/// A loaded and initialized driver that is new enough. A process has at most one, and it is never unloaded.
#[derive(Clone, Debug)]
pub struct Driver {
    version: Version,
    basics: Basics,
    functions: Functions,
}

impl Driver {
    /// Returns the driver that [`VARIABLE`] names, or else the installed one.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`], [`CudaError::NotTheDriver`], [`CudaError::DriverTooOld`], [`CudaError::NoGpu`].
    pub fn get() -> Result<&'static Self, CudaError> {
        Self::once(|| env::var_os(VARIABLE).filter(|named| !named.is_empty()))
    }

    /// Loads the library at a path as the driver; for tests, which cannot set an environment variable of their own
    /// process. If a driver is already open, it is returned instead.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn at(library: &Path) -> Result<&'static Self, CudaError> {
        Self::once(|| Some(library.into()))
    }

    fn once(named: impl FnOnce() -> Option<OsString>) -> Result<&'static Self, CudaError> {
        // A failure is not cached: a driver may be installed later, and a test may supply another one.
        DRIVER.get().map_or_else(|| open(named().as_deref()).map(|driver| DRIVER.get_or_init(|| driver)), Ok)
    }

    /// Returns the driver opened by [`Self::get`] or [`Self::at`].
    ///
    /// # Errors
    /// [`CudaError::NoDriver`] if no driver is open.
    pub(super) fn opened() -> Result<&'static Self, CudaError> {
        DRIVER.get().ok_or_else(|| CudaError::NoDriver { reason: "none is open yet".to_owned() })
    }

    pub(super) const fn basics(&self) -> &Basics {
        &self.basics
    }

    pub(super) const fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The newest CUDA version that the driver supports.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }
}

fn open(named: Option<&OsStr>) -> Result<Driver, CudaError> {
    let refused = |error: libloading::Error| match named {
        Some(named) => {
            CudaError::NotTheDriver { library: Path::new(named).display().to_string(), reason: reason_of(&error) }
        }
        None => CudaError::NoDriver { reason: reason_of(&error) },
    };
    // SAFETY: the library is the driver by its name, or the user names it in order to run it.
    let library = unsafe { Library::new(named.unwrap_or_else(|| OsStr::new(LIBRARY))) }.map_err(refused)?;
    // SAFETY: the library is the driver by its name, or the user names it as the driver.
    let basics = unsafe { Basics::find(&library) }.map_err(refused)?;
    let driver = initialized(&library, basics, refused);
    // The driver's threads may outlive a call, so the library stays loaded even if it cannot be used.
    mem::forget(library);
    driver
}

fn initialized(
    library: &Library,
    basics: Basics,
    refused: impl Fn(libloading::Error) -> CudaError,
) -> Result<Driver, CudaError> {
    let version = Version(driver_version(&basics)?.unsigned_abs());
    // Checked before `cuInit`, which may succeed on an old driver, and before functions that such a driver lacks.
    if version < NEEDED {
        return Err(CudaError::DriverTooOld { found: version });
    }
    // SAFETY: as in `open`.
    let functions = unsafe { Functions::find(library) }.map_err(refused)?;
    match init(&basics) {
        Err(CudaError::Call { code, .. }) if code.number == NO_DEVICE => Err(CudaError::NoGpu),
        answer => answer.map(|()| Driver { version, basics, functions }),
    }
}

/// The loader's message, which libloading keeps in the error's source.
fn reason_of(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Initializes a driver that is not open yet.
#[track_caller]
fn init(basics: &Basics) -> Result<(), CudaError> {
    // SAFETY: the driver is loaded; 0 is the only value of the argument.
    answer(basics, "cuInit", unsafe { (basics.cuInit)(0) })
}

/// The driver's version, 12040 for 12.4. The only function that may be called before [`init`].
#[track_caller]
fn driver_version(basics: &Basics) -> Result<i32, CudaError> {
    let mut version = 0;
    // SAFETY: the driver is loaded and writes the version before it returns.
    answer(basics, "cuDriverGetVersion", unsafe { (basics.cuDriverGetVersion)(&raw mut version) })?;
    Ok(version)
}
