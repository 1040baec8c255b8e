//! Output at a terminal: colour, and the terminal's width. The tests use Linux's pseudo-terminals.
#![cfg(target_os = "linux")]

use std::{
    fs::File,
    io::Read,
    os::fd::OwnedFd,
    path::Path,
    process::{Command, Stdio},
};

use rustix::{
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

const PLAN: [&str; 4] = ["plan", "config/train_gpt2.py", "--batch_size=64", "--compile=False"];

/// Returns the output at a terminal of this width, with additional variables.
fn on_terminal(columns: u16, variables: &[(&str, &str)]) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&terminal).expect("this process holds its other end");
    unlockpt(&terminal).expect("and open");
    let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).expect("a width");
    let screen: OwnedFd = ioctl_tiocgptpeer(&terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("the other end");
    let headroom = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let mut command = Command::new(headroom);
    command.args(PLAN).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    command.env_remove("COLUMNS").env_remove("NO_COLOR").env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(screen).stderr(Stdio::null());
    let mut child = command.spawn().expect("headroom runs");
    // The command holds the screen's end open, and a terminal ends only when no process does.
    drop(command);
    let mut shown = Vec::new();
    // The end of a pseudo-terminal reads as an error.
    let _ = File::from(terminal).read_to_end(&mut shown);
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    String::from_utf8(shown).expect("text").replace("\r\n", "\n")
}

fn widest(text: &str) -> usize {
    // The address in PyTorch's message is one word of 98 characters.
    text.lines().filter(|line| !line.contains("https://")).map(|line| line.chars().count()).max().expect("lines")
}

#[test]
fn a_terminal_is_coloured() {
    let shown = on_terminal(100, &[]);
    assert!(shown.starts_with("\x1b[1;31mDoes not fit on RTX 4070: fails "), "{shown}");
    assert!(shown.contains("\x1b[1mBy phase"), "{shown}");
}

#[test]
fn colour_can_be_declined() {
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = on_terminal(100, &[variable]);
        assert!(shown.starts_with("Does not fit on RTX 4070") && !shown.contains('\x1b'), "{variable:?}: {shown}");
    }
    assert!(on_terminal(100, &[("NO_COLOR", "")]).contains('\x1b'), "an empty variable counts as unset");
}

#[test]
fn lines_are_as_wide_as_the_terminal() {
    for columns in [80_u16, 100, 120] {
        let shown = on_terminal(columns, &[("NO_COLOR", "1")]);
        assert!(widest(&shown) <= usize::from(columns), "{columns}: {shown}");
    }
    assert!(widest(&on_terminal(80, &[("NO_COLOR", "1"), ("COLUMNS", "120")])) > 90, "COLUMNS comes first");
}
