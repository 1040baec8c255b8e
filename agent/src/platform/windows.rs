//! Windows: Ctrl-C goes to every program of the console, ours included, which waits for the child to end of it. There
//! are no other signals to hand on, and no terminal that a child could be given in the place of ours.

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

use super::{Ending, Screen};

/// Waits for a child.
#[derive(Debug)]
pub struct Attendant {
    interrupted: Arc<AtomicBool>,
}

impl Attendant {
    /// Takes Ctrl-C over.
    ///
    /// # Errors
    /// The system gives no handler.
    pub fn new() -> io::Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        flag::register(SIGINT, Arc::clone(&interrupted))?;
        Ok(Self { interrupted })
    }

    /// There is no terminal whose size to keep.
    pub fn keep_size(&mut self, _: &Screen) {}

    /// Whether Ctrl-C was pressed.
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

    /// Whether Ctrl-C was pressed, as a signal's number.
    pub fn told_to_end(&mut self) -> Option<i32> {
        self.interrupted.swap(false, Ordering::Relaxed).then_some(SIGINT)
    }
}

/// None: what a child prints goes through a pipe here.
pub fn screen(_: &File) -> Option<Screen> {
    None
}

/// Our standard output and standard error, as files that write at once.
///
/// # Errors
/// The system lets no more files be open.
pub fn our_outputs() -> io::Result<(File, File)> {
    let (out, err) = (io::stdout().as_handle().try_clone_to_owned()?, io::stderr().as_handle().try_clone_to_owned()?);
    Ok((out.into(), err.into()))
}

/// A pipe: what is written to the second comes out of the first.
///
/// # Errors
/// The system lets no more files be open.
pub fn pipe() -> io::Result<(File, File)> {
    let (reader, writer) = io::pipe()?;
    Ok((OwnedHandle::from(reader).into(), OwnedHandle::from(writer).into()))
}

/// Not known here: each stream has a pipe of its own.
pub fn is_same<T>(_: &T, _: &T) -> bool {
    false
}

/// How a program ended.
pub fn ending(status: ExitStatus) -> Ending {
    Ending::Exited(status.code().unwrap_or(1))
}

/// There are no signals to end by.
pub fn end_by_signal(_: i32) {}
