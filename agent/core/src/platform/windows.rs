//! Windows: Ctrl-C goes to every program of the console, including this one, which waits for the child to end. There
//! are no other signals to forward, and no pseudoterminal for a child.

use std::{
    fs::File,
    io,
    os::windows::io::{AsHandle, OwnedHandle},
    process::{Child, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use signal_hook::{consts::SIGINT, flag};

use super::{ProgramEnding, Screen};

/// Waits for a child.
#[derive(Debug)]
pub struct ChildSupervisor {
    interrupted: Arc<AtomicBool>,
}

impl ChildSupervisor {
    /// Installs the handler of Ctrl-C.
    ///
    /// # Errors
    /// The system refuses the handler.
    pub fn new() -> io::Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        flag::register(SIGINT, Arc::clone(&interrupted))?;
        Ok(Self { interrupted })
    }

    /// Does nothing: children have no pseudoterminal.
    pub fn keep_size(&mut self, _: &Screen) {}

    /// Returns whether Ctrl-C was pressed.
    pub fn was_asked_to_end(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Waits until the child has ended.
    ///
    /// # Errors
    /// The system does not know the child.
    pub fn wait(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        child.wait()
    }

    /// Returns SIGINT if Ctrl-C was pressed since the last call.
    pub fn stop_signal(&mut self) -> Option<i32> {
        self.interrupted.swap(false, Ordering::Relaxed).then_some(SIGINT)
    }
}

/// Returns `None`: a child's output goes through a pipe.
pub fn screen(_: &File) -> Option<Screen> {
    None
}

/// Returns this process's standard output and standard error as unbuffered files.
///
/// # Errors
/// The limit of open files is reached.
pub fn our_outputs() -> io::Result<(File, File)> {
    let (out, err) = (io::stdout().as_handle().try_clone_to_owned()?, io::stderr().as_handle().try_clone_to_owned()?);
    Ok((out.into(), err.into()))
}

/// Creates a pipe and returns its reader and its writer.
///
/// # Errors
/// The limit of open files is reached.
pub fn pipe() -> io::Result<(File, File)> {
    let (reader, writer) = io::pipe()?;
    Ok((OwnedHandle::from(reader).into(), OwnedHandle::from(writer).into()))
}

/// Returns `false`: each stream has its own pipe.
pub fn is_same<T>(_: &T, _: &T) -> bool {
    false
}

/// Returns a text that identifies an open file. This system has none for pipes.
pub fn identity<T>(_: &T) -> Option<String> {
    None
}

/// Returns `None`: a process keeps the id of a parent that has ended.
pub fn parent_id() -> Option<u32> {
    None
}

/// Returns how a program ended.
pub fn ending(status: ExitStatus) -> ProgramEnding {
    ProgramEnding::Exited(status.code().unwrap_or(1))
}

/// Returns `None`: Windows sends no signal for a closed terminal.
pub fn hang_up() -> Option<i32> {
    None
}

/// Returns `false`: a closed console ends its programs.
pub fn is_hung_up(_: &File, _: &io::Error) -> bool {
    false
}

/// Does nothing: Windows has no signals.
pub fn end_by_signal(_: i32) {}
