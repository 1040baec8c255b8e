//! Other people's pages that show the calculator, made as their authors would make them: `tests/hosts`.

use crate::{
    failure::{Doing, Failure, Result},
    files,
    pins::MKDOCS,
    shell::{Shell, step},
    tools,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What Python has to have. Debian's has no venv until it is installed.
const PYTHON_PROBE: &str = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))";
const PYTHONS: [&str; 2] = ["python3", "python"];

/// The sites, each a folder of plain files.
#[derive(Debug)]
pub struct Sites {
    pub mdbook: PathBuf,
    /// `None` on a machine without Python.
    pub mkdocs: Option<PathBuf>,
}

/// Why there is no site by MkDocs, where there is none.
pub const NO_MKDOCS: &str = "Python 3.11 or newer with venv is not installed, so MkDocs cannot be fetched";

/// Makes both anew: it takes a second.
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

/// MkDocs in a virtual environment of its own, or `None` where there is no Python to make one with.
fn ensure_mkdocs(shell: &Shell) -> Result<Option<PathBuf>> {
    let list = shell.root.join("tests/hosts/mkdocs/requirements.txt");
    let digest = files::digest(std::slice::from_ref(&list), MKDOCS.version)?;
    let environment = shell.tools.join("mkdocs");
    let programs = environment.join(if cfg!(windows) { "Scripts" } else { "bin" });
    let program = programs.join(MKDOCS.brings).with_extension(std::env::consts::EXE_EXTENSION);
    let stamp = environment.join("headroom.stamp");
    if files::is_stamped(&stamp, &digest) && program.is_file() {
        return Ok(Some(program));
    }
    let suits = |python: &&&str| shell.cmd(**python).args(["-c", PYTHON_PROBE]).read().is_some();
    let Some(python) = PYTHONS.iter().find(suits) else { return Ok(None) };
    if environment.is_dir() {
        fs::remove_dir_all(&environment).doing(|| format!("remove {}", environment.display()))?;
    }
    fs::create_dir_all(&shell.tools).doing(|| format!("create {}", shell.tools.display()))?;
    step(&format!("install {} {}", MKDOCS.package, MKDOCS.version), MKDOCS.why, || {
        let folder = environment.display().to_string();
        shell.cmd(*python).args(["-m", "venv", &folder]).run("does this Python have venv?")?;
        pip(shell, &programs, &list)
    })?;
    if !program.is_file() {
        return Err(Failure::new(format!("MkDocs was installed, but {} is not there", program.display())));
    }
    files::write_stamp(&stamp, &digest)?;
    Ok(Some(program))
}

fn pip(shell: &Shell, programs: &Path, list: &Path) -> Result<()> {
    let python = programs.join("python").into_os_string();
    let quiet = ["--quiet", "--disable-pip-version-check", "--no-input"];
    let command = shell.cmd(python).args(["-m", "pip", "install"]).args(quiet);
    command.args(["--requirement", &list.display().to_string()]).run(tools::OFFLINE_HINT)
}
