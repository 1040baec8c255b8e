//! NVML's library: where it is looked for, and what it means that it cannot be used.

use std::{env, ffi::OsStr, fs, path::Path};

use headroom_shared::text;
use nvml_wrapper::{Nvml, error::NvmlError};

use super::answers::reason;

/// What names another library.
pub const VARIABLE: &str = "HEADROOM_NVML";

/// Where it is when nobody says: where the loader finds it, WSL's folder, which not every distribution's loader knows,
/// and NixOS's.
#[cfg(not(windows))]
const USUAL: &[&str] =
    &["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "/run/opengl-driver/lib/libnvidia-ml.so.1"];
#[cfg(windows)]
const USUAL: &[&str] = &["nvml.dll", "C:\\Program Files\\NVIDIA Corporation\\NVSMI\\nvml.dll"];

/// A driver that answers.
#[derive(Debug)]
pub struct Library {
    /// Its calls.
    pub nvml: Nvml,
    /// Whether Windows manages the cards.
    pub windows: bool,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absent {
    /// No library.
    Library,
    /// A library, and no driver that it can use.
    Driver(String),
}

/// Loads the library and begins to use it: the one that is named, else that of the variable, else the system's.
pub fn load(named: Option<&Path>) -> Result<Library, Absent> {
    let named = named.map(|path| path.as_os_str().to_owned()).or_else(|| env::var_os(VARIABLE));
    match named {
        Some(path) => init(&path).map_err(|error| match error {
            NvmlError::LibloadingError(error) => {
                Absent::Driver(text::driver_library_unloadable(error.to_string()).to_string())
            }
            error => Absent::Driver(reason(&error)),
        }),
        None => first_of(USUAL),
    }
}

fn first_of(paths: &[&str]) -> Result<Library, Absent> {
    let mut absent = Absent::Library;
    for path in paths {
        match init(OsStr::new(path)) {
            Ok(library) => return Ok(library),
            Err(NvmlError::LibloadingError(_)) => {}
            Err(error) => absent = Absent::Driver(reason(&error)),
        }
    }
    Err(absent)
}

fn init(path: &OsStr) -> Result<Library, NvmlError> {
    let nvml = Nvml::builder().lib_path(path).init()?;
    Ok(Library { nvml, windows: cfg!(windows) || is_wsls(path) || is_wsl() })
}

/// Whether the library lies in a folder of WSL's.
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
    fn a_named_library_that_is_no_library_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("libnvidia-ml.so.1");
        for text in [None, Some("no library")] {
            if let Some(text) = text {
                fs::write(&path, text).expect("a file");
            }
            let absent = load(Some(&path)).expect_err("it is none");
            assert!(matches!(&absent, Absent::Driver(reason) if reason.contains("cannot be loaded")), "{absent:?}");
        }
    }

    #[test]
    fn a_machine_without_a_library_is_one() {
        assert_eq!(first_of(&["/there/is/none", "/nor/there"]).expect_err("there is none"), Absent::Library);
    }

    #[test]
    fn wsls_library_is_told_by_its_folder() {
        assert!(is_wsls(OsStr::new("/usr/lib/wsl/lib/libnvidia-ml.so.1")));
        assert!(!is_wsls(OsStr::new("/usr/lib/wslg/libnvidia-ml.so.1")));
    }
}
