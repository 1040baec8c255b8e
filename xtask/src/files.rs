//! Directory traversal and change detection.

use crate::failure::{IoContext, Result};
use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
};

/// Directories of build output and downloads, never of sources.
const NOT_SOURCES: &[&str] = &["target", "dist", "node_modules", ".git", ".tools"];

/// Every file below `folder`, sorted; an empty list if the folder is missing.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop().filter(|folder| folder.is_dir()) {
        for entry in fs::read_dir(&folder).doing(|| format!("list {}", folder.display()))? {
            let path = entry.doing(|| format!("list {}", folder.display()))?.path();
            if !path.is_dir() {
                files.push(path);
            } else if !path.file_name().is_some_and(|name| NOT_SOURCES.iter().any(|other| name == *other)) {
                open.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Writes an executable script.
pub fn write_program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).doing(|| format!("write {}", path.display()))?;
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .doing(|| format!("make {} a program", path.display()))?;
    Ok(())
}

/// Creates an empty directory, or empties an existing one.
pub fn remake(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        fs::remove_dir_all(folder).doing(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))
}

/// Removes every file of `folder` with this extension, and creates the directory if it is missing.
pub fn clear(folder: &Path, ending: &str) -> Result<()> {
    for file in files_below(folder)?.iter().filter(|file| file.extension().is_some_and(|found| found == ending)) {
        fs::remove_file(file).doing(|| format!("remove {}", file.display()))?;
    }
    fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))
}

/// Copies every file below `from` to the same relative path below `to`.
pub fn copy_below(from: &Path, to: &Path) -> Result<()> {
    for file in files_below(from)? {
        let target = to.join(file.strip_prefix(from).unwrap_or(&file));
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))?;
        }
        fs::copy(&file, &target).doing(|| format!("copy {}", file.display()))?;
    }
    Ok(())
}

/// Returns a digest of the files' paths and contents. It ignores modification times, because a checkout changes them
/// all.
pub fn digest(files: &[PathBuf], settings: &str) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    settings.hash(&mut hasher);
    for file in files {
        file.hash(&mut hasher);
        fs::read(file).doing(|| format!("read {}", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

pub fn digest_of_contents(files: &[PathBuf]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    for file in files {
        fs::read(file).doing(|| format!("read {}", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// Returns whether the file `stamp` holds `digest`.
pub fn is_stamped(stamp: &Path, digest: &str) -> bool {
    fs::read_to_string(stamp).is_ok_and(|found| found == digest)
}

/// Writes `digest` to the file `stamp`.
pub fn write_stamp(stamp: &Path, digest: &str) -> Result<()> {
    if let Some(folder) = stamp.parent() {
        fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))?;
    }
    fs::write(stamp, digest).doing(|| format!("write {}", stamp.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_sees_content_names_and_settings() {
        let folder = std::env::temp_dir().join(format!("xtask-digest-{}", std::process::id()));
        fs::create_dir_all(folder.join("target")).expect("a folder");
        fs::write(folder.join("a"), "1").expect("a file");
        fs::write(folder.join("target/built"), "1").expect("a file");
        let files = files_below(&folder).expect("a list");
        assert_eq!(files, [folder.join("a")], "build output is not source");

        let first = digest(&files, "").expect("a digest");
        assert_eq!(digest(&files, "").expect("a digest"), first);
        assert_ne!(digest(&files, "fast").expect("a digest"), first);
        fs::write(folder.join("a"), "2").expect("a file");
        assert_ne!(digest(&files, "").expect("a digest"), first);
        fs::remove_dir_all(folder).expect("removed");
    }
}
