//! Python packages, each with its dependencies in a separate environment.

use crate::{
    failure::{IoContext, Result},
    files,
    pins::Pin,
    shell::{Shell, step},
    tools,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The probe for a usable Python. Debian packages venv separately.
const PROBE: &str = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))";
const NAMES: [&str; 2] = ["python3", "python"];

/// An environment with a package.
#[derive(Debug)]
pub struct Environment {
    /// The directory of its programs.
    pub programs: PathBuf,
}

impl Environment {
    pub fn python(&self) -> PathBuf {
        self.programs.join("python").with_extension(std::env::consts::EXE_EXTENSION)
    }
}

/// Creates an environment with the packages of `list`, among them `pin`. Returns `None` without a usable Python.
pub fn ensure(shell: &Shell, pin: Pin, list: &Path) -> Result<Option<Environment>> {
    let digest = files::digest(&[list.to_owned()], pin.version)?;
    let folder = shell.tools.join(pin.brings);
    let environment = Environment { programs: folder.join(if cfg!(windows) { "Scripts" } else { "bin" }) };
    let stamp = folder.join("headroom.stamp");
    if files::is_stamped(&stamp, &digest) && environment.python().is_file() {
        return Ok(Some(environment));
    }
    let suits = |python: &&&str| shell.cmd(**python).args(["-c", PROBE]).read().is_some();
    let Some(python) = NAMES.iter().find(suits) else { return Ok(None) };
    if folder.is_dir() {
        fs::remove_dir_all(&folder).doing(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(&shell.tools).doing(|| format!("create {}", shell.tools.display()))?;
    step(&format!("install {} {}", pin.package, pin.version), pin.why, || {
        let folder = folder.display().to_string();
        shell.cmd(*python).args(["-m", "venv", &folder]).run("does this Python have venv?")?;
        // The list is complete. Other dependencies are not installed, such as the 100 MB compiler that the assembler's
        // package names.
        let quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"];
        let command = shell.cmd(environment.python().into_os_string()).args(["-m", "pip", "install"]).args(quiet);
        command.args(["--requirement", &list.display().to_string()]).run(tools::OFFLINE_HINT)
    })?;
    files::write_stamp(&stamp, &digest)?;
    Ok(Some(environment))
}
