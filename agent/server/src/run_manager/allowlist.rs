//! Allow-list of the owner: configs and data sets of one directory in nanoGPT's layout, by name.
//!
//! External names are compared with these lists and never turned into paths. Links that lead out of the directory are
//! excluded.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use headroom_planner::nanogpt::{Source, read};

use headroom_train::{
    self as train,
    data::{BUILTIN, dataset::Split},
};

/// Name of the built-in config.
pub const STORIES: &str = "stories";
/// Limit of listed configs, and of data sets: ten times what nanoGPT includes, and small enough for a page.
const LISTED_MAX: usize = 200;
/// Limit of directory entries to examine.
const ENTRIES_MAX: usize = 4096;
/// Size limit of a config: a hundred times the usual size.
const CONFIG_BYTES_MAX: u64 = 256 << 10;
/// Limit of a listed name in bytes.
const NAME_BYTES_MAX: usize = 128;

/// The training directory.
#[derive(Clone, Debug)]
pub struct Allowlist {
    root: PathBuf,
}

/// A config on the allow-list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// File name, or the name of the built-in config.
    pub name: String,
    /// Text of the config.
    pub text: String,
    /// Data set that the config names.
    pub dataset: String,
    /// Device that the config names, if any.
    pub device: Option<String>,
    /// `max_iters` of the config.
    pub max_iters: Option<u64>,
}

impl Config {
    fn new(name: String, text: String) -> Self {
        let mut settings = read(&[Source::File { name: name.clone(), text: text.clone() }]);
        let dataset = settings.get_str("dataset").unwrap_or_default();
        let device = if settings.is_set("device") { settings.get_str("device") } else { None };
        Self { dataset, device, max_iters: settings.get_u64("max_iters"), name, text }
    }
}

impl Allowlist {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// The directory is missing, or its name is not UTF-8.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let root = folder.canonicalize()?;
        if root.to_str().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "its name is not UTF-8"));
        }
        fs::read_dir(&root)?;
        Ok(Self { root })
    }

    /// Canonical path of the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Checks that the directory can still be listed.
    ///
    /// # Errors
    /// What the system reports.
    pub fn check(&self) -> io::Result<()> {
        fs::read_dir(&self.root).map(drop)
    }

    /// Configs: the built-in one first, followed by files in order of their names.
    pub fn configs(&self) -> Vec<Config> {
        let files = self.names("config").into_iter().filter_map(|name| {
            let path = self.inside(&self.root.join("config").join(&name))?;
            Some(Config::new(name, text(&path)?))
        });
        // The built-in config's device is meant for nanoGPT; here the first usable device is the default.
        let built_in = Config { device: None, ..Config::new(STORIES.to_owned(), train::STORIES.to_owned()) };
        [built_in].into_iter().chain(files).take(LISTED_MAX).collect()
    }

    /// Names of data sets, the built-in one first. A data set is a directory with both splits.
    pub fn datasets(&self) -> Vec<String> {
        let folders = self.names("data").into_iter().filter(|name| name != BUILTIN && self.dataset(name).is_some());
        [BUILTIN.to_owned()].into_iter().chain(folders).take(LISTED_MAX).collect()
    }

    /// Directory of a listed data set. `None` if it is missing, like the built-in one before its first use.
    pub fn dataset(&self, name: &str) -> Option<PathBuf> {
        let folder = self.inside(&self.root.join("data").join(name))?;
        let has = |split: Split| self.inside(&folder.join(split.file_name())).is_some_and(|path| path.is_file());
        ([Split::Train, Split::Val].into_iter().all(has)).then_some(folder)
    }

    /// Sorted names in a subdirectory that qualify as configs or data sets.
    fn names(&self, of: &str) -> Vec<String> {
        let Some(folder) = self.inside(&self.root.join(of)) else { return vec![] };
        let entries = fs::read_dir(folder).into_iter().flatten().take(ENTRIES_MAX).flatten();
        let is_config = of == "config";
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_name(name) && (!is_config || name.ends_with(".py")))
            .collect();
        names.sort_unstable();
        names
    }

    /// Canonical form of a path, if it is still inside the directory.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        path.canonicalize().ok().filter(|path| path.starts_with(&self.root))
    }
}

fn is_name(name: &str) -> bool {
    !name.starts_with(['.', '-']) && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

/// Text of a config. `None` if it is not a file, not UTF-8 or too long.
fn text(path: &Path) -> Option<String> {
    // Opening a pipe would block.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= CONFIG_BYTES_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for path in ["config", "data/shakespeare_char", "data/half", "data/.hidden", "elsewhere"] {
            fs::create_dir_all(folder.path().join(path)).expect("a folder");
        }
        for path in ["shakespeare_char/train.bin", "shakespeare_char/val.bin", "half/train.bin", ".hidden/train.bin"] {
            fs::write(folder.path().join("data").join(path), [0; 8]).expect("a file");
        }
        fs::write(folder.path().join("data/.hidden/val.bin"), [0; 8]).expect("a file");
        let text = "dataset = 'shakespeare_char'\nmax_iters = 70\n";
        fs::write(folder.path().join("config/train_char.py"), text).expect("a file");
        fs::write(folder.path().join("config/notes.txt"), text).expect("a file");
        fs::write(folder.path().join("config/binary.py"), [0xff; 8]).expect("a file");
        folder
    }

    fn names(allowed: &Allowlist) -> Vec<String> {
        allowed.configs().into_iter().map(|config| config.name).collect()
    }

    #[test]
    fn configs_and_data_sets_are_listed_by_name() {
        let folder = folder();
        let allowed = Allowlist::new(folder.path()).expect("it is there");
        let configs = allowed.configs();
        assert_eq!(names(&allowed), ["stories", "train_char.py"]);
        assert_eq!((configs[1].dataset.as_str(), configs[1].max_iters), ("shakespeare_char", Some(70)));
        assert_eq!((configs[0].dataset.as_str(), configs[0].max_iters), (BUILTIN, Some(5000)));
        assert_eq!(allowed.datasets(), ["builtin", "shakespeare_char"]);
        Allowlist::new(&folder.path().join("none")).expect_err("it is not there");
        Allowlist::new(&folder.path().join("config/notes.txt")).expect_err("it is not a folder");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_within_the_folder_alone() {
        use std::os::unix::fs::symlink;
        let (folder, outside) = (folder(), folder());
        let (here, there) = (folder.path(), outside.path());
        symlink(there.join("config/train_char.py"), here.join("config/linked.py")).expect("a link");
        symlink(here.join("config/train_char.py"), here.join("config/again.py")).expect("a link");
        symlink("loop.py", here.join("config/loop.py")).expect("a link");
        symlink(there.join("data/shakespeare_char"), here.join("data/linked")).expect("a link");
        fs::create_dir(here.join("data/inner")).expect("a folder");
        for half in ["train.bin", "val.bin"] {
            symlink(there.join("data/shakespeare_char").join(half), here.join("data/inner").join(half))
                .expect("a link");
        }
        let allowed = Allowlist::new(here).expect("it is there");
        assert_eq!(names(&allowed), ["stories", "again.py", "train_char.py"]);
        assert_eq!(allowed.datasets(), ["builtin", "shakespeare_char"]);
        // The directory of configs may itself be a link.
        fs::remove_dir_all(here.join("config")).expect("removed");
        symlink(there.join("config"), here.join("config")).expect("a link");
        assert_eq!(names(&allowed), ["stories"]);
    }
}
