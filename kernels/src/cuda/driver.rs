//! Whether there is a driver, which one, and whether it is new enough: asked before anything else, and once a process.

use std::{env, error::Error as _, ffi::OsString, fmt, path::Path, sync::OnceLock};

use cudarc::driver::sys;
use libloading::Library;

use super::{calls, error::CudaError};

/// Names a library to open as the driver before any other: another build of it, or one for tests.
pub const VARIABLE: &str = "HEADROOM_CUDA";
/// The oldest CUDA whose driver takes PTX 8.4, which the kernels are compiled to.
pub const NEEDED: Version = Version(12_040);
/// The first release of a driver for it (CUDA 12.4 release notes, table 2).
pub const NEEDED_RELEASE: &str = "550";

/// Where systems have the driver.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// A symbol that every driver has.
const FIRST_CALL: &str = "cuInit";

/// The newest CUDA that a driver knows, as the driver counts: 12040 is 12.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// A driver that is loaded, begun and new enough. There is one in a process, and it stays.
#[derive(Clone, Debug, PartialEq)]
pub struct Driver {
    version: Version,
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
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        // What failed may be tried again: a driver can be installed, and a test has another one to offer.
        DRIVER.get().map_or_else(|| open(named()).map(|driver| DRIVER.get_or_init(|| driver)), Ok)
    }

    /// The newest CUDA that it knows.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }
}

fn open(named: Option<OsString>) -> Result<Driver, CudaError> {
    let named = named.map(|named| Named::load(&named)).transpose()?;
    if !is_present() {
        return Err(CudaError::NoDriver { reason: why_absent() });
    }
    if let Some(named) = named {
        named.answers()?;
    }
    let version = Version(calls::driver_version()?.unsigned_abs());
    // Asked before `cuInit`, which on such a driver may well succeed.
    if version < NEEDED {
        return Err(CudaError::DriverTooOld { found: version });
    }
    match calls::init() {
        Err(CudaError::Call { code, .. }) if code.number == sys::CUresult::CUDA_ERROR_NO_DEVICE as u32 => {
            Err(CudaError::NoCard)
        }
        answer => answer.map(|()| Driver { version }),
    }
}

/// Without the question, the first call would panic where there is none.
fn is_present() -> bool {
    // SAFETY: the libraries that it opens are the driver under its known names, whose start is to be opened.
    unsafe { sys::is_culib_present() }
}

fn why_absent() -> String {
    // SAFETY: as above.
    match unsafe { Library::new(LIBRARY) } {
        Err(error) => told(&error),
        Ok(_) => format!("{LIBRARY} can be opened only now"),
    }
}

/// What the loader says, which it keeps a level below.
fn told(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// The library that the variable names. It is opened first and kept open, so that the loader gives it to whoever asks
/// for the name that it has in itself.
struct Named {
    library: &'static Library,
    name: String,
}

impl Named {
    fn load(path: &OsString) -> Result<Self, CudaError> {
        let name = Path::new(path).display().to_string();
        // SAFETY: the person who starts the program names it to be run; the symbol is found and not called.
        let library = unsafe {
            let library = Library::new(path);
            library.and_then(|library| library.get::<*const ()>(FIRST_CALL).map(drop).map(|()| library))
        };
        match library {
            Ok(library) => Ok(Self { library: Box::leak(Box::new(library)), name }),
            Err(error) => Err(CudaError::NotTheDriver { library: name, reason: told(&error) }),
        }
    }

    /// Whether calls come to it, and not to another library of the driver's name that lies where the loader looks
    /// first.
    fn answers(self) -> Result<(), CudaError> {
        // SAFETY: `is_present` found that there is a library; the addresses are compared and not called.
        let addresses = unsafe {
            let of = |library: &Library| library.get::<*const ()>(FIRST_CALL).map(|symbol| *symbol);
            (of(self.library), of(sys::culib()))
        };
        let reason = match addresses {
            (Err(error), _) => told(&error),
            (Ok(own), Ok(answers)) if own == answers => return Ok(()),
            _ => "another library of the driver's name is found before it".to_owned(),
        };
        Err(CudaError::NotTheDriver { library: self.name, reason })
    }
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
