//! Exit statuses. Every help and the page `exit-codes.md` list them.

use std::process::ExitCode;

/// Exit status of a command. The numbers are a stable interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: success; for `plan`, the run fits.
    Success,
    /// 1: a negative answer, no match, or a failure.
    Failure,
    /// 2: the command line or the config is invalid.
    Usage,
    /// 3: a file, a directory, a port, the network or standard output cannot be read, written or opened.
    InputOutput,
    /// The status of a watched program, or 128 plus the number of the signal that ended the work.
    Of(u8),
}

/// Help text for status 2.
pub const USAGE: (u8, &str) = (2, "the command line or the config cannot be used");
/// Help text for status 3.
pub const INPUT_OUTPUT: (u8, &str) = (3, "a file, a folder, a port or the output cannot be read, written or opened");
impl Exit {
    /// Status as a number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => USAGE.0,
            Self::InputOutput => INPUT_OUTPUT.0,
            Self::Of(status) => status,
        }
    }

    /// Status of a failure: 3 if the system refused a file, a directory, a port or the network, else 1.
    pub const fn input_output_if(is_input_output: bool) -> Self {
        if is_input_output { Self::InputOutput } else { Self::Failure }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
