//! Command and process of a run.

use std::{
    io,
    path::Path,
    process::{Child, Command, Stdio},
};

use headroom_protocol::run::{Run, RunRequest};

use super::{Error, RunManagerState, allowlist::Allowlist, own_folder, run_dir};
use headroom_agent_core::{folders::private_file, platform};
use headroom_train::{checkpoint, data::BUILTIN, device::DeviceSpec, stop};

/// Environment variables that runs must not inherit: a secret, and the agent's connections to systemd.
const NOT_FOR_RUNS: [&str; 3] = ["HEADROOM_WEBHOOK", "JOURNAL_STREAM", "NOTIFY_SOCKET"];
/// GPU order by PCI bus, as in NVML, rather than fastest first.
const ORDER_OF_GPUS: (&str, &str) = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");

/// Sets the environment of a run, or of a process that queries GPUs as a run would.
pub fn as_runs_are(command: &mut Command) {
    NOT_FOR_RUNS.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.env(ORDER_OF_GPUS.0, ORDER_OF_GPUS.1);
}

impl RunManagerState {
    /// `headroom train` command of a new or resumed run. A resumed run takes its keys from the checkpoint.
    ///
    /// # Errors
    /// The path of this executable is unknown, or a path is not UTF-8.
    pub fn words(
        &self,
        allowed: &Allowlist,
        folder: &Path,
        order: &RunRequest,
        goes_on: bool,
    ) -> Result<Vec<String>, Error> {
        let unknown = |why: &str| Error::Program(why.to_owned());
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or_else(|| unknown("a path is not UTF-8"));
        let program = self.program.as_deref().map_err(|error| unknown(&error.to_string()))?;
        let mut words = vec![text(program)?, "train".to_owned()];
        if goes_on {
            words.push("--init_from=resume".to_owned());
        } else {
            // The config determines the initial weights.
            words.push(text(&folder.join(run_dir::CONFIG))?);
        }
        let dataset = order.dataset.as_deref().unwrap_or(BUILTIN);
        let dataset = match allowed.dataset(dataset) {
            Some(path) => text(&path)?,
            // The built-in data set is created if it is missing.
            None if dataset == BUILTIN => BUILTIN.to_owned(),
            None => text(&allowed.root().join("data").join(dataset))?,
        };
        words.push(format!("--dataset={dataset}"));
        words.push(format!("--out_dir={}", text(folder)?));
        words.push(format!("--device={}", order.device.clone().unwrap_or_else(|| DeviceSpec::Cpu.to_string())));
        Ok(words)
    }

    /// Starts the watcher of a queued run, which starts the run.
    ///
    /// # Errors
    /// The run belongs to another training directory, or the process cannot be started.
    pub fn start(&self, allowed: &Allowlist, run: &Run) -> Result<Child, Error> {
        let folder = own_folder(run)?;
        let failed = |error: io::Error| Error::Folder { folder: folder.clone(), error };
        if folder.parent() != Some(allowed.root()) {
            return Err(Error::Elsewhere { folder });
        }
        // Clears a stop request from before the run was queued again.
        stop::forget(&run_dir::stop(&folder)).map_err(failed)?;
        let order = run.order.clone().unwrap_or_default();
        let goes_on = checkpoint::progress(&folder).is_some();
        let words = self.words(allowed, &folder, &order, goes_on)?;
        run_dir::forget_reason(&self.data, &run.id);
        let said = run_dir::watcher_log(&self.data, &run.id).map_err(failed)?;
        let said = private_file().truncate(true).open(said).map_err(failed)?;
        let mut command = Command::new(&words[0]);
        command.args(["watch", "--data-dir"]).arg(&self.data).args(["--run-id", &run.id, "--"]).args(&words);
        as_runs_are(&mut command);
        command.env(stop::VARIABLE, run_dir::stop(&folder)).current_dir(allowed.root());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        platform::apart(&mut command);
        command.spawn().map_err(failed)
    }
}
