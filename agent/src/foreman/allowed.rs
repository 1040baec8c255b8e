//! What the owner allowed: configs and data sets of one folder in nanoGPT's layout, by their names.
//!
//! A name that comes from outside is compared with these lists and never made into a path. What a link leads out of the
//! folder to is not in them.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use headroom_shared::nanogpt::{Source, read};

use crate::{
    data::{BUILTIN, dataset::Split},
    train,
};

/// The config that is there without a file.
pub const STORIES: &str = "stories";
/// Configs, and data sets, that are listed at most: ten times what nanoGPT comes with, and little for a page.
const LISTED_MAX: usize = 200;
/// Entries of a folder that are looked at for them.
const ENTRIES_MAX: usize = 4096;
/// Longest config that is one: a hundred times what configs have.
const CONFIG_BYTES_MAX: u64 = 256 << 10;
/// Longest name that is listed.
const NAME_BYTES_MAX: usize = 128;

/// The folder.
#[derive(Clone, Debug)]
pub struct Allowed {
    root: PathBuf,
}

/// A config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its file's name; of the built-in one its own.
    pub name: String,
    /// What it says.
    pub text: String,
    /// The data set that it names.
    pub dataset: String,
    /// The device that it names, where it names one.
    pub device: Option<String>,
    /// Its `max_iters`.
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

impl Allowed {
    /// Of a folder, which has to be there.
    ///
    /// # Errors
    /// It is not, or its name is no text.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let root = folder.canonicalize()?;
        if root.to_str().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "its name is not UTF-8"));
        }
        fs::read_dir(&root)?;
        Ok(Self { root })
    }

    /// The folder, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the folder can still be listed.
    ///
    /// # Errors
    /// What the system says.
    pub fn check(&self) -> io::Result<()> {
        fs::read_dir(&self.root).map(drop)
    }

    /// Configs, the built-in one first, then by their names.
    pub fn configs(&self) -> Vec<Config> {
        let files = self.names("config").into_iter().filter_map(|name| {
            let path = self.inside(&self.root.join("config").join(&name))?;
            Some(Config::new(name, text(&path)?))
        });
        // The device that it names is for nanoGPT on any machine; here it is whichever comes first.
        let built_in = Config { device: None, ..Config::new(STORIES.to_owned(), train::STORIES.to_owned()) };
        [built_in].into_iter().chain(files).take(LISTED_MAX).collect()
    }

    /// Names of data sets, the built-in one first: folders with both halves.
    pub fn datasets(&self) -> Vec<String> {
        let folders = self.names("data").into_iter().filter(|name| name != BUILTIN && self.dataset(name).is_some());
        [BUILTIN.to_owned()].into_iter().chain(folders).take(LISTED_MAX).collect()
    }

    /// Where a data set that is listed lies; none where it is not there, as the built-in one before it is used first.
    pub fn dataset(&self, name: &str) -> Option<PathBuf> {
        let folder = self.inside(&self.root.join("data").join(name))?;
        let has = |split: Split| self.inside(&folder.join(split.file_name())).is_some_and(|path| path.is_file());
        ([Split::Train, Split::Val].into_iter().all(has)).then_some(folder)
    }

    /// Names in a folder of ours that can be those of configs and data sets, in their order.
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

    /// A path without its links, where that is still in the folder.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        path.canonicalize().ok().filter(|path| path.starts_with(&self.root))
    }
}

fn is_name(name: &str) -> bool {
    !name.starts_with(['.', '-']) && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

/// A config's text; none of what is no file, or no text, or too long.
fn text(path: &Path) -> Option<String> {
    // A pipe would hold its reader.
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

    fn names(allowed: &Allowed) -> Vec<String> {
        allowed.configs().into_iter().map(|config| config.name).collect()
    }

    #[test]
    fn configs_and_data_sets_are_listed_by_name() {
        let folder = folder();
        let allowed = Allowed::new(folder.path()).expect("it is there");
        let configs = allowed.configs();
        assert_eq!(names(&allowed), ["stories", "train_char.py"]);
        assert_eq!((configs[1].dataset.as_str(), configs[1].max_iters), ("shakespeare_char", Some(70)));
        assert_eq!((configs[0].dataset.as_str(), configs[0].max_iters), (BUILTIN, Some(5000)));
        assert_eq!(allowed.datasets(), ["builtin", "shakespeare_char"]);
        Allowed::new(&folder.path().join("none")).expect_err("it is not there");
        Allowed::new(&folder.path().join("config/notes.txt")).expect_err("it is no folder");
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
        let allowed = Allowed::new(here).expect("it is there");
        assert_eq!(names(&allowed), ["stories", "again.py", "train_char.py"]);
        assert_eq!(allowed.datasets(), ["builtin", "shakespeare_char"]);
        // The whole folder of configs may be elsewhere too.
        fs::remove_dir_all(here.join("config")).expect("it goes");
        symlink(there.join("config"), here.join("config")).expect("a link");
        assert_eq!(names(&allowed), ["stories"]);
    }
}
