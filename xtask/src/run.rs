//! `cargo xtask run`: from a fresh checkout to the page in a browser.

use crate::{
    args::Args,
    failure::{Failure, Result},
    page::{self, Build},
    shell::{Shell, note, step},
};
use std::{env, path::PathBuf};

/// The default port of `headroom serve`.
const PORT: u16 = 8420;

/// Builds everything and serves the page on this machine only.
pub fn run(shell: &Shell, mut args: Args) -> Result<()> {
    let port = match args.value("--port")? {
        Some(port) => port.parse().map_err(|_| {
            Failure::new(format!("--port {port} is not a port")).hint("a number from 0, any free one, to 65535")
        })?,
        None => PORT,
    };
    let open = !args.flag("--no-open");
    let build = if args.flag("--fast") { Build::Fast } else { Build::Release };
    args.finish()?;

    page::ensure(shell, build)?;
    let headroom = build_headroom(shell, build)?;
    serve(shell, &headroom, port, open && has_display())
}

/// Builds the program and returns its path. It embeds the page, so the page is built first.
pub fn build_headroom(shell: &Shell, build: Build) -> Result<PathBuf> {
    let (profile, folder) = if build == Build::Release { ("release", "release") } else { ("dev", "debug") };
    step("build headroom", "the program that serves the page; some minutes from nothing", || {
        shell
            .cmd("cargo")
            .args(["build", "--bin", "headroom", "--profile", profile])
            .run("the compiler's message is above; a missing `cc` or `gcc` is in your system's packages")
    })?;
    built(shell, folder)
}

/// Returns the path of the built program in this directory of cargo's target directory.
pub fn built(shell: &Shell, folder: &str) -> Result<PathBuf> {
    let program = shell.target.join(folder).join(format!("headroom{}", env::consts::EXE_SUFFIX));
    if program.is_file() {
        return Ok(program);
    }
    Err(Failure::new(format!("cargo built headroom, but {} is not there", program.display()))
        .hint("a build.target or build.target-dir in a Cargo configuration? Set CARGO_TARGET_DIR instead"))
}

/// Runs the server until it is interrupted. The server prints its link, which is valid once and cannot be derived here.
fn serve(shell: &Shell, headroom: &std::path::Path, port: u16, open: bool) -> Result<()> {
    eprintln!("==> headroom serve (the link is below; Ctrl-C ends it)");
    let listen = format!("127.0.0.1:{port}");
    let server = shell.cmd(headroom).args(["serve", "--listen", &listen]);
    let hint = format!("if the port is taken: `cargo xtask run --port {}`, or 0 for any", port.saturating_add(1));
    if !open {
        return server.run(&hint);
    }
    let mut opened = false;
    let (_, success) = server.watch(|line| {
        if let Some(link) = link_in(line).filter(|_| !opened) {
            opened = true;
            open_link(shell, link);
        }
    })?;
    if success { Ok(()) } else { Err(Failure::new("`headroom serve` failed").hint(hint)) }
}

fn has_display() -> bool {
    let set = |variable: &str| env::var_os(variable).is_some_and(|value| !value.is_empty());
    !cfg!(target_os = "linux") || set("DISPLAY") || set("WAYLAND_DISPLAY")
}

fn link_in(line: &str) -> Option<&str> {
    let start = line.find("http://").or_else(|| line.find("https://"))?;
    line[start..].split_whitespace().next()
}

/// Opens the link in a browser. A failure is only noted, because the link is printed.
fn open_link(shell: &Shell, link: &str) {
    let opener = match env::consts::OS {
        "macos" => shell.cmd("open").args([link]),
        "windows" => shell.cmd("explorer").args([link]),
        _ => shell.cmd("xdg-open").args([link]),
    };
    if opener.read().is_none() {
        note("no browser opened by itself; open the link above");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_found_in_a_line() {
        assert_eq!(link_in("  open http://127.0.0.1:8420/#t=ab once"), Some("http://127.0.0.1:8420/#t=ab"));
        assert_eq!(link_in("listening on 127.0.0.1:8420"), None);
    }
}
