//! Discovery of optional NVIDIA libraries (cuBLASLt, cuDNN): search paths, selection, and reasons for rejection.

pub(super) mod algorithm_file;
pub(super) mod loaded;

pub use algorithm_file::PREFIXES;

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt, fs,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{CudaError, Device};

/// Value of a library's environment variable that disables the library.
pub const OFF: &str = "off";

/// Library directories within a CUDA installation.
const TOOLKIT: &[&str] = if cfg!(windows) { &["bin/x64", "bin"] } else { &["lib64", "lib"] };
/// Maximum number of directory entries read while looking for versioned names.
const ENTRIES_MAX: usize = 4096;
/// Maximum number of directories of PATH that are searched.
const PATH_MAX: usize = 256;
/// Maximum number of libraries that are tried. No host has that many, and each takes some hundred MB to open.
const TRIED_MAX: usize = 16;

/// Number of timed repetitions after a warm-up; the median counts.
const TIMED: usize = 5;

/// Median time of [`TIMED`] repetitions in milliseconds, after one warm-up.
#[track_caller]
pub(super) fn timed(device: &Device, launch: impl Fn() -> Result<(), CudaError>) -> Result<f32, CudaError> {
    launch()?;
    let mut millis = [0.0; TIMED];
    for time in &mut millis {
        *time = device.millis(&launch)?;
    }
    millis.sort_by(f32::total_cmp);
    Ok(millis[TIMED / 2])
}

/// An optional library and where it is searched.
#[derive(Debug, PartialEq, Eq)]
pub struct LibrarySpec {
    /// NVIDIA's name of the library.
    pub name: &'static str,
    /// Environment variable with the library's path; an unusable library is an error. Empty or [`OFF`] disables the
    /// library.
    pub variable: &'static str,
    /// File names, newest version first.
    pub files: &'static [&'static str],
    /// Directories of the pip packages for CUDA 13 and CUDA 12, within `site-packages`.
    pub wheels: &'static [&'static str],
    /// Names of the pip packages.
    pub packages: &'static str,
}

/// A library that was found, with a version of its own numbering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedLibrary<V> {
    /// NVIDIA's name of the library.
    pub name: &'static str,
    /// Path, or a file name that the loader resolved.
    pub library: PathBuf,
    /// Version of the library.
    pub version: V,
}

impl<V: fmt::Display> fmt::Display for LoadedLibrary<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.name, self.version, self.library.display())
    }
}

/// A candidate library that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedLibrary {
    pub library: PathBuf,
    /// Reason for the rejection.
    pub reason: String,
}

impl fmt::Display for RejectedLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.library.display(), self.reason)
    }
}

/// Why no library was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LibraryError {
    /// The environment variable disables the library.
    #[error("{} says that there is to be no {}", .0.variable, .0.name)]
    Off(&'static LibrarySpec),
    /// The library named by the environment variable cannot be used, and a run must not start without it.
    #[error("{} names a library that cannot be used: {}", .0.variable, .1)]
    Named(&'static LibrarySpec, RejectedLibrary),
    /// No usable library was found; with the rejected candidates.
    #[error("{}", nowhere(.0, .1))]
    Nowhere(&'static LibrarySpec, Vec<RejectedLibrary>),
}

impl LibraryError {
    /// Whether the user must fix this, as opposed to a host without the library.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        matches!(self, Self::Named(..))
    }
}

fn nowhere(wanted: &LibrarySpec, refused: &[RejectedLibrary]) -> String {
    let mut text = format!("no {} is found here (pip has it as {})", wanted.name, wanted.packages);
    for (i, refused) in refused.iter().enumerate() {
        text += if i == 0 { "; not used: " } else { "; " };
        text += &refused.to_string();
    }
    text
}

/// Loads the library named by the environment variable, or else the first usable one found.
pub(super) fn find<T>(
    wanted: &'static LibrarySpec,
    take: impl Fn(&Path) -> Result<T, RejectedLibrary>,
) -> Result<T, LibraryError> {
    match env::var_os(wanted.variable) {
        Some(value) if value.is_empty() || value == OFF => Err(LibraryError::Off(wanted)),
        Some(named) => take(Path::new(&named)).map_err(|refused| LibraryError::Named(wanted, refused)),
        None => first_of(wanted, places(wanted, &|name| env::var_os(name), Path::new("/")), take),
    }
}

fn first_of<T>(
    wanted: &'static LibrarySpec,
    places: Vec<PathBuf>,
    take: impl Fn(&Path) -> Result<T, RejectedLibrary>,
) -> Result<T, LibraryError> {
    let mut refused = vec![];
    for library in places.into_iter().take(TRIED_MAX) {
        match take(&library) {
            Ok(taken) => return Ok(taken),
            // A bare file name that the loader did not find is not a candidate, so it is not listed.
            Err(_) if library.components().count() == 1 => {}
            Err(why) => refused.push(why),
        }
    }
    Err(LibraryError::Nowhere(wanted, refused))
}

/// Candidate paths in search order. First the pip packages: of the active environment, of the Pythons on `PATH`, of the
/// user and of the machine. Then CUDA: as named by variables, and as installed, newest first. Then conda, and last the
/// bare file names, which the loader resolves. Only paths of existing files are listed.
fn places(wanted: &LibrarySpec, variable: &dyn Fn(&str) -> Option<OsString>, root: &Path) -> Vec<PathBuf> {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let (venv, conda) = (folder("VIRTUAL_ENV"), folder("CONDA_PREFIX"));
    let mut packages: Vec<PathBuf> = vec![];
    for prefix in [&venv, &conda].into_iter().flatten() {
        packages.extend(site_packages(prefix));
    }
    // Machine images often put an environment on PATH without activating it.
    let path = variable("PATH").unwrap_or_default();
    packages
        .extend(env::split_paths(&path).take(PATH_MAX).flat_map(|bin| pythons(&bin)).flat_map(|at| site_packages(&at)));
    packages.extend(folder("HOME").iter().flat_map(|home| site_packages(&home.join(".local"))));
    for prefix in ["usr", "usr/local"] {
        packages.extend(site_packages(&root.join(prefix)));
    }
    let mut folders: Vec<PathBuf> =
        packages.iter().flat_map(|packages| wanted.wheels.iter().map(|wheel| packages.join(wheel))).collect();
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(folder);
    for toolkit in named.chain(toolkits(&root.join("usr/local"))) {
        folders.extend(TOOLKIT.iter().map(|within| toolkit.join(within)));
    }
    folders.extend(conda.map(|conda| conda.join(if cfg!(windows) { "Library/bin" } else { "lib" })));

    let files = folders.iter().flat_map(|folder| wanted.files.iter().map(|name| folder.join(name)));
    let mut places: Vec<PathBuf> = vec![];
    for file in files.filter(|file| file.is_file()).chain(wanted.files.iter().map(PathBuf::from)) {
        if !places.contains(&file) {
            places.push(file);
        }
    }
    places
}

/// Prefixes of the Python in a `bin` directory: the parent directory, and that of the symbolic link's target.
fn pythons(bin: &Path) -> Vec<PathBuf> {
    let python = bin.join(if cfg!(windows) { "python.exe" } else { "python3" });
    if !python.is_file() {
        return vec![];
    }
    let pointed = fs::read_link(&python).ok().map(|to| bin.join(to));
    let bins = [Some(bin), pointed.as_deref().and_then(Path::parent)].into_iter().flatten();
    // On Windows `python.exe` is in the prefix itself, or in a subdirectory for a virtual environment.
    let prefixes = bins.flat_map(|bin| [cfg!(windows).then_some(bin), bin.parent()]);
    prefixes.flatten().map(Path::to_owned).collect()
}

/// Directories of Python packages of a prefix, newest Python first.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    if cfg!(windows) {
        return vec![prefix.join("Lib/site-packages")];
    }
    let lib = prefix.join("lib");
    let pythons = versions(&lib, "python").into_iter();
    pythons.flat_map(|python| [python.join("site-packages"), python.join("dist-packages")]).collect()
}

/// CUDA installations: the default one that `cuda` links to, then the versioned ones, newest first.
fn toolkits(folder: &Path) -> Vec<PathBuf> {
    let mut toolkits = vec![folder.join("cuda")];
    toolkits.extend(versions(folder, "cuda-"));
    toolkits
}

/// Directory entries whose name is `name` followed by a version, newest first.
fn versions(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(ENTRIES_MAX).flatten();
    let version = |entry: &OsStr| {
        let rest = entry.to_str()?.strip_prefix(name)?;
        rest.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>()
    };
    let mut found: Vec<_> = entries.filter_map(|entry| Some((version(&entry.file_name())?, entry.path()))).collect();
    found.sort_by(|(one, _), (other, _)| other.cmp(one));
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    static WANTED: LibrarySpec = LibrarySpec {
        name: "cuBLASLt",
        variable: "HEADROOM_CUBLASLT",
        files: &["libcublasLt.so.13", "libcublasLt.so.12"],
        wheels: &["nvidia/cu13/lib", "nvidia/cublas/lib"],
        packages: "nvidia-cublas",
    };

    #[test]
    fn places_are_tried_in_their_order() {
        let folder = env::temp_dir().join(format!("headroom-libraries-{}", std::process::id()));
        let file = |path: &str| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            fs::write(&path, "").expect("a file");
        };
        let in_order = [
            "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
            "venv/lib/python3.9/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
            "image/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
            "linked/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
            "home/.local/lib/python3.11/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
            "usr/lib/python3.13/dist-packages/nvidia/cublas/lib/libcublasLt.so.12",
            "usr/local/lib/python3.12/dist-packages/nvidia/cublas/lib/libcublasLt.so.12",
            "toolkit/lib64/libcublasLt.so.12",
            "usr/local/cuda/lib64/libcublasLt.so.12",
            "usr/local/cuda-13.0/lib64/libcublasLt.so.13",
            "usr/local/cuda-12.10/lib64/libcublasLt.so.12",
            "usr/local/cuda-12.9/lib64/libcublasLt.so.12",
            "conda/lib/libcublasLt.so.12",
        ];
        // These must not be found: the directory has no Python, and the name has no version.
        let unseen = ["none/lib/python3.12/site-packages/nvidia/cu13/lib/libcublasLt.so.13", "none/bin/pip"];
        let unseen = unseen.into_iter().chain(["usr/local/cuda-old/lib64/libcublasLt.so.12"]);
        in_order.into_iter().chain(unseen).chain(["image/bin/python3", "linked/bin/python3.12"]).for_each(file);
        fs::create_dir_all(folder.join("links")).expect("a folder");
        std::os::unix::fs::symlink(folder.join("linked/bin/python3.12"), folder.join("links/python3")).expect("a link");
        let path = env::join_paths(["none/bin", "image/bin", "links"].map(|bin| folder.join(bin))).expect("no colons");
        let variable = |name: &str| match name {
            "VIRTUAL_ENV" => Some(folder.join("venv").into()),
            "CONDA_PREFIX" => Some(folder.join("conda").into()),
            "HOME" => Some(folder.join("home").into()),
            "CUDA_HOME" => Some(folder.join("toolkit").into()),
            "CUDA_PATH" => Some(OsString::new()),
            "PATH" => Some(path.clone()),
            other => panic!("{other} is not a search variable"),
        };
        let found = places(&WANTED, &variable, &folder);
        let mut want: Vec<PathBuf> = in_order.iter().map(|path| folder.join(path)).collect();
        want.extend(WANTED.files.iter().map(PathBuf::from));
        fs::remove_dir_all(&folder).expect("it is ours");
        assert_eq!(found, want);
    }
}
