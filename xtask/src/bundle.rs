//! Joins style sheets, and minifies scripts and style sheets.
//!
//! A style sheet per component is easy to read and slow to load: each is a request, and compresses separately.

use crate::{
    failure::{IoContext, Result},
    files, parallel,
    shell::Shell,
};
use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
};

/// Joins style sheets of `web` into one in `dist`, and returns its name.
pub fn join<'a>(web: &Path, sheets: impl Iterator<Item = &'a str>, dist: &Path) -> Result<String> {
    let mut css = String::new();
    for sheet in sheets {
        css.push_str(&fs::read_to_string(web.join(sheet)).doing(|| format!("read web/{sheet}"))?);
        css.push('\n');
    }
    let mut hasher = DefaultHasher::new();
    css.hash(&mut hasher);
    let name = format!("styles-{:016x}.css", hasher.finish());
    fs::write(dist.join(&name), css).doing(|| format!("write {name}"))?;
    Ok(name)
}

/// Minifies scripts and style sheets.
pub fn make_small(shell: &Shell, dist: &Path) -> Result<()> {
    let all = files::files_below(dist)?;
    let is_code = |file: &&PathBuf| file.extension().is_some_and(|ending| ending == "css" || ending == "js");
    parallel::for_each(&all.iter().filter(is_code).collect::<Vec<_>>(), |file| minify(shell, file))
}

fn minify(shell: &Shell, file: &Path) -> Result<()> {
    let path = file.display().to_string();
    shell
        .cmd("esbuild")
        .args([&*path, "--minify", "--allow-overwrite", "--log-level=warning"])
        .args([format!("--outfile={path}")])
        .run("the lines above say what it does not read in that file")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, process};

    #[test]
    fn style_sheets_are_joined_in_order() {
        let folder = env::temp_dir().join(format!("headroom-xtask-styles-{}", process::id()));
        files::remake(&folder).expect("a folder");
        fs::write(folder.join("a.css"), "a {}").expect("a file");
        fs::write(folder.join("b.css"), "b {}").expect("a file");
        let name = join(&folder, ["b.css", "a.css"].into_iter(), &folder).expect("style sheets");
        assert_eq!(fs::read_to_string(folder.join(&name)).expect("a file"), "b {}\na {}\n");
        join(&folder, ["gone.css"].into_iter(), &folder).expect_err("the file is missing");
        fs::remove_dir_all(folder).expect("removed");
    }
}
