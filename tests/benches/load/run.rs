//! The course of the benchmark: start the program, connect viewers, and measure for a while.

use std::{
    error::Error,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use headroom_fake_nvml::{Scenario, Stage};
use headroom_tests::server::Server;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{runtime, task::JoinSet, time::sleep};

use crate::{
    Size,
    process::{cores, taken, threads},
    report::Report,
    viewer::{Viewer, join},
};

/// Number of viewers that connect concurrently. The server limits connections whose handshake is not finished.
const JOINING_AT_ONCE: usize = 32;
/// Time to settle before the measurement.
const SETTLE: Duration = Duration::from_secs(3);
/// Open files other than the viewers' sockets.
const OTHER_FILES: u64 = 64;

/// Runs the benchmark.
pub fn run(size: Size) -> Result<Report, Box<dyn Error>> {
    let n_files = size.n_viewers as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < n_files) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(n_files), ..limit })
            .map_err(|error| format!("{n_files} open files are needed, and the system allows fewer: {error}"))?;
    }
    let headroom = program()?;
    let folder = tempfile::tempdir()?;
    let stage = Stage::new(folder.path(), &[], &Scenario::of_gpus(size.n_gpus))?;
    let server = Server::start_with(&headroom, |command| {
        command.env("HEADROOM_NVML", stage.library());
    });
    let token = token(&headroom, &server)?;
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure(size, &server, &token))
}

/// Returns the program: that of `HEADROOM_BIN`, otherwise that of the same build.
fn program() -> Result<PathBuf, Box<dyn Error>> {
    if let Some(path) = std::env::var_os("HEADROOM_BIN") {
        return Ok(path.into());
    }
    let executable = std::env::current_exe()?;
    let path = executable.ancestors().nth(2).unwrap_or(Path::new("")).join("headroom");
    if path.is_file() {
        return Ok(path);
    }
    Err("there is no program to measure: `cargo build --release --package headroom-agent` builds it".into())
}

/// Creates an access token, as for Prometheus.
fn token(headroom: &Path, server: &Server) -> Result<String, Box<dyn Error>> {
    let mut command = Command::new(headroom);
    let output = command.args(["token", "add", "load", "--data-dir"]).arg(server.folder()).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    // The agent reloads tokens once per second.
    std::thread::sleep(Duration::from_secs(2));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

async fn measure(size: Size, server: &Server, token: &str) -> Result<Report, Box<dyn Error>> {
    let address: SocketAddr = server.host().parse()?;
    let before = taken(server.pid())?;
    let since = Instant::now();
    sleep(SETTLE).await;
    let server_cores_alone = cores(before, taken(server.pid())?, since.elapsed());

    let measuring = Arc::new(AtomicBool::new(false));
    let mut viewers = Vec::new();
    let mut watching = JoinSet::new();
    let since = Instant::now();
    while viewers.len() < size.n_viewers {
        let n_now = JOINING_AT_ONCE.min(size.n_viewers - viewers.len());
        for socket in futures_util::future::join_all((0..n_now).map(|_| join(address, token))).await {
            let viewer = Viewer::default();
            watching.spawn(viewer.clone().watch(socket?, Arc::clone(&measuring)));
            viewers.push(viewer);
        }
    }
    let join_s = since.elapsed().as_secs_f64();
    sleep(SETTLE).await;

    let own = std::process::id();
    let threads_before = threads(server.pid())?;
    let (server_before, own_before, since) = (taken(server.pid())?, taken(own)?, Instant::now());
    measuring.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(size.seconds)).await;
    measuring.store(false, Ordering::Relaxed);
    let (server_after, own_after, wall) = (taken(server.pid())?, taken(own)?, since.elapsed());
    let server_threads = threads(server.pid())?.into_iter().map(|(name, after)| {
        let before = threads_before.get(&name).copied().unwrap_or_default();
        let cores = after.saturating_sub(before).as_secs_f64() / wall.as_secs_f64();
        (name, cores)
    });
    let server_threads = server_threads.collect();
    watching.shutdown().await;
    Ok(Report {
        size,
        wall_s: wall.as_secs_f64(),
        join_s,
        server_cores: cores(server_before, server_after, wall),
        server_cores_alone,
        server_threads,
        server_resident_bytes: server_after.resident_bytes,
        client_cores: cores(own_before, own_after, wall),
        seen: viewers.iter().map(|viewer| viewer.seen().clone()).collect(),
    })
}
