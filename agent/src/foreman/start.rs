//! The command of a run, and its process.

use std::{
    fs::File,
    io,
    path::Path,
    process::{Child, Command, Stdio},
};

use headroom_shared::protocol::run::{Order, Run};

use super::{Error, Inner, allowed::Allowed, own_folder, place, saved};
use crate::{
    data::BUILTIN,
    platform,
    train::{device::Wanted, stop},
};

/// Variables that are the agent's own: a secret, and what tells whom its output goes to.
const NOT_FOR_RUNS: [&str; 3] = ["HEADROOM_WEBHOOK", "JOURNAL_STREAM", "NOTIFY_SOCKET"];
/// Cards are counted as NVML counts them, by their places, and not the fastest first.
const ORDER_OF_CARDS: (&str, &str) = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");

/// Sets what a program finds that asks of cards as a run does, or is one.
pub fn as_runs_are(command: &mut Command) {
    NOT_FOR_RUNS.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.env(ORDER_OF_CARDS.0, ORDER_OF_CARDS.1);
}

impl Inner {
    /// `headroom train` for a run that begins, or that goes on from its checkpoint, whose keys count then.
    ///
    /// # Errors
    /// This program does not know its own place, or a path is no text.
    pub fn words(&self, allowed: &Allowed, folder: &Path, order: &Order, goes_on: bool) -> Result<Vec<String>, Error> {
        let unknown = |why: &str| Error::Program(why.to_owned());
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or_else(|| unknown("a path is not UTF-8"));
        let program = self.program.as_deref().map_err(|error| unknown(&error.to_string()))?;
        let mut words = vec![text(program)?, "train".to_owned()];
        if goes_on {
            words.push("--init_from=resume".to_owned());
        } else {
            // What it starts from is the config's to say.
            words.push(text(&folder.join(place::CONFIG))?);
        }
        let dataset = order.dataset.as_deref().unwrap_or(BUILTIN);
        let dataset = match allowed.dataset(dataset) {
            Some(path) => text(&path)?,
            // It is made where it is missing.
            None if dataset == BUILTIN => BUILTIN.to_owned(),
            None => text(&allowed.root().join("data").join(dataset))?,
        };
        words.push(format!("--dataset={dataset}"));
        words.push(format!("--out_dir={}", text(folder)?));
        words.push(format!("--device={}", order.device.clone().unwrap_or_else(|| Wanted::Cpu.to_string())));
        Ok(words)
    }

    /// Starts the watcher of a run that waits, which starts the run.
    ///
    /// # Errors
    /// The run is not of the folder that is served, or the system gives no process.
    pub fn start(&self, allowed: &Allowed, run: &Run) -> Result<Child, Error> {
        let folder = own_folder(run)?;
        let failed = |error: io::Error| Error::Folder { folder: folder.clone(), error };
        if folder.parent() != Some(allowed.root()) {
            return Err(Error::Elsewhere { folder });
        }
        // A wish that came before it was put into the queue again.
        stop::forget(&place::stop(&folder)).map_err(failed)?;
        let order = run.order.clone().unwrap_or_default();
        let goes_on = saved::read(&folder).is_some();
        let words = self.words(allowed, &folder, &order, goes_on)?;
        let said = File::create(place::watcher_log(&self.data, &run.id).map_err(failed)?).map_err(failed)?;
        let mut command = Command::new(&words[0]);
        command.args(["watch", "--data-dir"]).arg(&self.data).args(["--run-id", &run.id, "--"]).args(&words);
        as_runs_are(&mut command);
        command.env(stop::VARIABLE, place::stop(&folder)).current_dir(allowed.root());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        platform::apart(&mut command);
        command.spawn().map_err(failed)
    }
}
