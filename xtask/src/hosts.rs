//! Third-party sites that embed the calculator, built as their authors would build them: `tests/hosts`.

use crate::{
    failure::{Failure, Result},
    files,
    pins::MKDOCS,
    python,
    shell::{Shell, step},
    tools,
};
use std::path::PathBuf;

/// The sites, each a directory of static files.
#[derive(Debug)]
pub struct Sites {
    pub mdbook: PathBuf,
    /// `None` on a machine without Python.
    pub mkdocs: Option<PathBuf>,
}

/// The reason for a missing MkDocs site.
pub const NO_MKDOCS: &str = "Python 3.11 or newer with venv is not installed, so MkDocs cannot be fetched";

/// Builds both; it takes a second.
pub fn ensure(shell: &Shell) -> Result<Sites> {
    tools::ensure_mdbook(shell)?;
    let mkdocs = ensure_mkdocs(shell)?;
    let sites = shell.target.join("xtask").join("hosts");
    files::remake(&sites)?;
    step("make the pages of others", "the tests look at the calculator in pages by mdBook and MkDocs", || {
        let mdbook = sites.join("mdbook");
        let (from, to) = (shell.root.join("tests/hosts/mdbook"), mdbook.display().to_string());
        shell.cmd("mdbook").args(["build", "--dest-dir", &to]).dir(&from).run("the lines above say what it minds")?;
        let mkdocs = mkdocs.map(|program| {
            let site = sites.join("mkdocs");
            let (from, to) = (shell.root.join("tests/hosts/mkdocs"), site.display().to_string());
            let command = shell.cmd(program.into_os_string()).args(["build", "--strict", "--quiet", "--site-dir", &to]);
            command.dir(&from).run("the lines above say what it minds").map(|()| site)
        });
        Ok(Sites { mdbook, mkdocs: mkdocs.transpose()? })
    })
}

/// Installs MkDocs; `None` without Python.
fn ensure_mkdocs(shell: &Shell) -> Result<Option<PathBuf>> {
    let list = shell.root.join("tests/hosts/mkdocs/requirements.txt");
    let Some(environment) = python::ensure(shell, MKDOCS, &list)? else { return Ok(None) };
    let program = environment.programs.join(MKDOCS.brings).with_extension(std::env::consts::EXE_EXTENSION);
    if !program.is_file() {
        return Err(Failure::new(format!("MkDocs was installed, but {} is not there", program.display())));
    }
    Ok(Some(program))
}
