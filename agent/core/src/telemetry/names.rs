//! Names and owners of the processes that use a GPU; the system is queried for those only.

use std::{ffi::OsString, path::Path};

use headroom_protocol::{
    gpu::Process,
    reading::{MissingReason, Reading},
};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind, Users};

use super::processes::User;

/// The longest name in characters; a command line may have a megabyte.
const NAME_CHARS_MAX: usize = 120;

/// The system's process and user tables; `None` if sysinfo does not support the system.
#[derive(Debug)]
pub struct Names {
    system: Option<System>,
    users: Option<Users>,
}

impl Default for Names {
    fn default() -> Self {
        Self { system: System::new().ok(), users: Users::new().ok() }
    }
}

impl Names {
    /// Updates the given processes and forgets all others.
    pub fn refresh(&mut self, pids: impl Iterator<Item = u32>) {
        let (Some(system), Some(users)) = (&mut self.system, &mut self.users) else { return };
        let pids: Vec<Pid> = pids.map(Pid::from_u32).collect();
        // A process may execute another program, so its command line is read each time.
        let kind = ProcessRefreshKind::nothing()
            .with_cmd(UpdateKind::Always)
            .with_user(UpdateKind::OnlyIfNotSet)
            .without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&pids), true, kind);
        let is_known = |pid: &Pid| {
            let user = system.process(*pid).and_then(sysinfo::Process::user_id);
            user.is_none_or(|user| users.get_user_by_id(user).is_some())
        };
        if !pids.iter().all(is_known) {
            users.refresh();
        }
    }

    /// Returns the processes with their names.
    pub fn tell(&self, users: Vec<User>) -> Vec<Process> {
        users.into_iter().map(|user| self.one(user)).collect()
    }

    /// The driver lists processes of the whole machine. One that the system does not show is in another container, or
    /// has just ended. One that is shown without its user belongs to another user.
    fn one(&self, User { pid, memory_used_bytes }: User) -> Process {
        let process = self.system.as_ref().and_then(|system| system.process(Pid::from_u32(pid)));
        let name = process.map(|process| name(process.cmd(), &process.name().to_string_lossy()));
        let user = process.and_then(sysinfo::Process::user_id).map(|id| {
            // A user without a name on this machine, as in a container, is shown as a number.
            let user = self.users.as_ref().and_then(|users| users.get_user_by_id(id));
            user.map_or_else(|| id.to_string(), |user| user.name().to_owned())
        });
        let why = if process.is_some() { MissingReason::NoPermission } else { MissingReason::NotVisible };
        let reading = |text: Option<String>| text.map_or(Reading::missing(why), Reading::Is);
        Process { pid, name: reading(name), user: reading(user), memory_used_bytes, run: None }
    }
}

/// Returns a program's short name: its file name, and for Python the script or module.
fn name(words: &[OsString], short: &str) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let program = words.first().map_or(short, |word| file_name(word));
    let name = if is_python(program) {
        match script(&words[1..]) {
            Some(script) => format!("python {script}"),
            None => "python".to_owned(),
        }
    } else if program.is_empty() {
        short.to_owned()
    } else {
        program.to_owned()
    };
    name.chars().filter(|char| !char.is_control()).take(NAME_CHARS_MAX).collect()
}

fn file_name(word: &str) -> &str {
    Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or(word)
}

fn is_python(program: &str) -> bool {
    let program = program.strip_suffix(".exe").unwrap_or(program);
    let version = program.strip_prefix("pythonw").or_else(|| program.strip_prefix("python"));
    version.is_some_and(|version| version.chars().all(|char| char.is_ascii_digit() || char == '.' || char == 't'))
}

/// Returns the script or module after Python's own options.
fn script(words: &[std::borrow::Cow<'_, str>]) -> Option<String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match &**word {
            "-m" => return words.next().map(|module| format!("-m {module}")),
            "-c" => return Some("-c".to_owned()),
            "-W" | "-X" | "--check-hash-based-pycs" => {
                words.next();
            }
            option if option.starts_with('-') && option.len() > 1 => {}
            script => return Some(file_name(script).to_owned()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_program_has_its_scripts_name() {
        for (command, expected) in [
            ("python train.py config/train_gpt2.py", "python train.py"),
            ("/usr/bin/python3.12 -u /home/ada/nanoGPT/train.py --compile=False", "python train.py"),
            ("python3 -X dev -W ignore train.py", "python train.py"),
            ("/opt/venv/bin/python /opt/venv/bin/torchrun --nproc_per_node=2 train.py", "python torchrun"),
            ("python -m torch.distributed.run train.py", "python -m torch.distributed.run"),
            ("python -c print(1)", "python -c"),
            ("python3", "python"),
            ("pythonish x", "pythonish"),
            ("/usr/lib/xorg/Xorg :0", "Xorg"),
            ("", "kworker"),
        ] {
            let words: Vec<OsString> = command.split_whitespace().map(OsString::from).collect();
            assert_eq!(name(&words, "kworker"), expected, "{command}");
        }
        let long = [OsString::from("x".repeat(1000) + "\u{1b}[2J")];
        assert_eq!(name(&long, "").len(), NAME_CHARS_MAX);
    }

    #[test]
    fn this_process_has_a_name_and_one_that_is_not_there_has_a_reason() {
        let mut names = Names::default();
        // The kernel assigns no process id above 2^22.
        let pids = [std::process::id(), 1 << 30];
        names.refresh(pids.into_iter());
        let users = pids.map(|pid| User { pid, memory_used_bytes: Reading::Is(1) }).to_vec();
        let [this, none] = names.tell(users).try_into().expect("two");
        assert!(this.name.get().is_some_and(|name| name.starts_with("headroom")), "{this:?}");
        assert!(this.user.get().is_some(), "{this:?}");
        assert_eq!(
            (none.name.why(), none.user.why()),
            (Some(MissingReason::NotVisible), Some(MissingReason::NotVisible))
        );
    }
}
