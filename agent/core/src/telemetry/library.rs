//! Loading of NVML's library, and the reasons why it cannot be used.

use std::{env, ffi::OsStr, fs, path::Path};

use headroom_protocol::message::Message;
use headroom_text as text;
use nvml_wrapper::{Nvml, error::NvmlError};

use super::nvml_errors::reason;

/// The environment variable with the path of another library.
pub const VARIABLE: &str = "HEADROOM_NVML";

/// The default paths: the loader's search path, the WSL directory, which not every distribution's loader searches, and
/// NixOS's directory.
#[cfg(not(windows))]
const USUAL: &[&str] =
    &["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "/run/opengl-driver/lib/libnvidia-ml.so.1"];
#[cfg(windows)]
const USUAL: &[&str] = &["nvml.dll", "C:\\Program Files\\NVIDIA Corporation\\NVSMI\\nvml.dll"];

/// A loaded library with a driver that responds.
#[derive(Debug)]
pub struct Library {
    /// NVML's functions.
    pub nvml: Nvml,
    /// Whether Windows manages the GPUs, natively or under WSL.
    pub windows: bool,
}

/// Why NVML cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NvmlUnavailable {
    /// The library was not found.
    Library,
    /// The library was found, but it cannot use a driver.
    Driver(Message),
}

/// Loads and initialises the library: the named one, otherwise that of the variable, otherwise the system's.
pub fn load(named: Option<&Path>) -> Result<Library, NvmlUnavailable> {
    let named = named.map(|path| path.as_os_str().to_owned()).or_else(|| env::var_os(VARIABLE));
    match named {
        Some(path) => init(&path).map_err(|error| match error {
            NvmlError::LibloadingError(error) => {
                NvmlUnavailable::Driver(text::driver_library_unloadable(error.to_string()).into())
            }
            error => NvmlUnavailable::Driver(reason(&error)),
        }),
        None => first_of(USUAL),
    }
}

fn first_of(paths: &[&str]) -> Result<Library, NvmlUnavailable> {
    let mut absent = NvmlUnavailable::Library;
    for path in paths {
        match init(OsStr::new(path)) {
            Ok(library) => return Ok(library),
            Err(NvmlError::LibloadingError(_)) => {}
            Err(error) => absent = NvmlUnavailable::Driver(reason(&error)),
        }
    }
    Err(absent)
}

fn init(path: &OsStr) -> Result<Library, NvmlError> {
    let nvml = Nvml::builder().lib_path(path).init()?;
    Ok(Library { nvml, windows: cfg!(windows) || is_wsls(path) || is_wsl() })
}

/// Returns whether the library is in a directory of WSL.
fn is_wsls(path: &OsStr) -> bool {
    Path::new(path).components().any(|part| part.as_os_str() == "wsl")
}

fn is_wsl() -> bool {
    fs::read_to_string("/proc/version").is_ok_and(|version| version.to_ascii_lowercase().contains("microsoft"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_file_that_is_not_a_library_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("libnvidia-ml.so.1");
        for text in [None, Some("no library")] {
            if let Some(text) = text {
                fs::write(&path, text).expect("a file");
            }
            let absent = load(Some(&path)).expect_err("it is not a library");
            assert!(
                matches!(&absent, NvmlUnavailable::Driver(reason) if reason.en.contains("cannot load the library")),
                "{absent:?}"
            );
        }
    }

    #[test]
    fn a_machine_without_a_library_is_one() {
        assert_eq!(
            first_of(&["/there/is/none", "/nor/there"]).expect_err("neither path exists"),
            NvmlUnavailable::Library
        );
    }

    #[test]
    fn wsls_library_is_reported_by_its_folder() {
        assert!(is_wsls(OsStr::new("/usr/lib/wsl/lib/libnvidia-ml.so.1")));
        assert!(!is_wsls(OsStr::new("/usr/lib/wslg/libnvidia-ml.so.1")));
    }
}
