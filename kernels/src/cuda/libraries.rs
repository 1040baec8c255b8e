//! Libraries of NVIDIA's that a host may have: where they are looked for, which one is taken, and why none is.

pub(super) mod kept;
pub(super) mod loaded;

pub use kept::PREFIXES;

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt, fs,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{CudaError, Device};

/// The value of a library's variable with which none is looked for.
pub const OFF: &str = "off";

/// Folders of libraries within an installation of CUDA.
const TOOLKIT: &[&str] = if cfg!(windows) { &["bin/x64", "bin"] } else { &["lib64", "lib"] };
/// Entries of a folder that are looked at: beyond, it is none that holds versions of something.
const ENTRIES_MAX: usize = 4096;
/// Folders of PATH that are looked at: beyond, it is none that a person made.
const PATH_MAX: usize = 256;
/// Libraries that are tried: more than any host has, and each is some hundred MB to open.
const TRIED_MAX: usize = 16;

/// How often something is timed, after once for nothing; the median counts.
const TIMED: usize = 5;

/// The median of a few times, in milliseconds.
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

/// A library that is looked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What NVIDIA calls it.
    pub name: &'static str,
    /// Names the library to take, by its path; one that cannot be used is an error. Empty, or [`OFF`]: none is looked for.
    pub variable: &'static str,
    /// Names of its file, the newest first.
    pub files: &'static [&'static str],
    /// Folders of pip's packages for CUDA 13, and for 12, within `site-packages`.
    pub wheels: &'static [&'static str],
    /// What pip calls its packages.
    pub packages: &'static str,
}

/// A library that was found; versions count as it counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<V> {
    /// What NVIDIA calls it.
    pub name: &'static str,
    /// Where: a path, or a name that the loader found by itself.
    pub library: PathBuf,
    /// Which one.
    pub version: V,
}

impl<V: fmt::Display> fmt::Display for Found<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.name, self.version, self.library.display())
    }
}

/// A library that was there and is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where.
    pub library: PathBuf,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.library.display(), self.reason)
    }
}

/// Why there is no library.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Absent {
    /// Nobody wants one.
    #[error("{} says that there is to be no {}", .0.variable, .0.name)]
    Off(&'static Wanted),
    /// The one that is named cannot be used: a run should not begin without what was asked for.
    #[error("{} names a library that cannot be used: {}", .0.variable, .1)]
    Named(&'static Wanted, Refused),
    /// None is where one is looked for, or none that can be used.
    #[error("{}", nowhere(.0, .1))]
    Nowhere(&'static Wanted, Vec<Refused>),
}

impl Absent {
    /// Whether this is an error, and not a host that does without.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        matches!(self, Self::Named(..))
    }
}

fn nowhere(wanted: &Wanted, refused: &[Refused]) -> String {
    let mut text = format!("no {} is found here (pip has it as {})", wanted.name, wanted.packages);
    for (i, refused) in refused.iter().enumerate() {
        text += if i == 0 { "; not used: " } else { "; " };
        text += &refused.to_string();
    }
    text
}

/// What is made of the library that the variable names, else of the first that can be used of those in the usual places.
pub(super) fn find<T>(wanted: &'static Wanted, take: impl Fn(&Path) -> Result<T, Refused>) -> Result<T, Absent> {
    match env::var_os(wanted.variable) {
        Some(value) if value.is_empty() || value == OFF => Err(Absent::Off(wanted)),
        Some(named) => take(Path::new(&named)).map_err(|refused| Absent::Named(wanted, refused)),
        None => first_of(wanted, places(wanted, &|name| env::var_os(name), Path::new("/")), take),
    }
}

fn first_of<T>(
    wanted: &'static Wanted,
    places: Vec<PathBuf>,
    take: impl Fn(&Path) -> Result<T, Refused>,
) -> Result<T, Absent> {
    let mut refused = vec![];
    for library in places.into_iter().take(TRIED_MAX) {
        match take(&library) {
            Ok(taken) => return Ok(taken),
            // The loader has none of that name: it was not seen, only asked for.
            Err(_) if library.components().count() == 1 => {}
            Err(why) => refused.push(why),
        }
    }
    Err(Absent::Nowhere(wanted, refused))
}

/// Where a library may be, in the order in which they are tried: what pip installed for the environment that is active, for
/// the Pythons that are called by their name, for the person and for the machine; CUDA as variables name it, then as it is
/// installed, the newest first; conda's; and where the loader looks by itself. Files that are there, and the loader's names.
fn places(wanted: &Wanted, variable: &dyn Fn(&str) -> Option<OsString>, root: &Path) -> Vec<PathBuf> {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let (venv, conda) = (folder("VIRTUAL_ENV"), folder("CONDA_PREFIX"));
    let mut packages: Vec<PathBuf> = vec![];
    for prefix in [&venv, &conda].into_iter().flatten() {
        packages.extend(site_packages(prefix));
    }
    // Images of machines put an environment on PATH and activate none.
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

/// Prefixes of the Python in a folder of programs: the one that the folder belongs to, and the one that it points to.
fn pythons(bin: &Path) -> Vec<PathBuf> {
    let python = bin.join(if cfg!(windows) { "python.exe" } else { "python3" });
    if !python.is_file() {
        return vec![];
    }
    let pointed = fs::read_link(&python).ok().map(|to| bin.join(to));
    let bins = [Some(bin), pointed.as_deref().and_then(Path::parent)].into_iter().flatten();
    // On Windows a Python lies in its prefix itself, and an environment's in a folder of it.
    let prefixes = bins.flat_map(|bin| [cfg!(windows).then_some(bin), bin.parent()]);
    prefixes.flatten().map(Path::to_owned).collect()
}

/// A prefix's folders of Python packages, those of the newest Python first.
fn site_packages(prefix: &Path) -> Vec<PathBuf> {
    if cfg!(windows) {
        return vec![prefix.join("Lib/site-packages")];
    }
    let lib = prefix.join("lib");
    let pythons = versions(&lib, "python").into_iter();
    pythons.flat_map(|python| [python.join("site-packages"), python.join("dist-packages")]).collect()
}

/// Installations of CUDA: the one that the machine's keeper made the usual one, then the newest first.
fn toolkits(folder: &Path) -> Vec<PathBuf> {
    let mut toolkits = vec![folder.join("cuda")];
    toolkits.extend(versions(folder, "cuda-"));
    toolkits
}

/// Entries of a folder that are called `name` and a version, the newest first.
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

    static WANTED: Wanted = Wanted {
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
        // The last but one has no Python in its folder of programs, and of the last there is no version.
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
            other => panic!("{other} says nothing of where the library is"),
        };
        let found = places(&WANTED, &variable, &folder);
        let mut want: Vec<PathBuf> = in_order.iter().map(|path| folder.join(path)).collect();
        want.extend(WANTED.files.iter().map(PathBuf::from));
        fs::remove_dir_all(&folder).expect("it is ours");
        assert_eq!(found, want);
    }
}
