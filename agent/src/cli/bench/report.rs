//! A line of the report: common fields first, then figures or a reason.

use std::io;

use serde::Serialize;

use super::print;

/// The version of the JSON schema.
const SCHEMA: u32 = 1;

/// The subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Machine,
    Gemm,
    /// Training on the CPU.
    Train,
    /// Generation on the CPU.
    Decode,
    /// Generation on WebGPU.
    Webgpu,
    /// Telemetry of the GPUs.
    Telemetry,
    /// Storage of the history.
    History,
}

#[derive(Debug, Serialize)]
struct Line<'a, F> {
    schema: u32,
    headroom: &'static str,
    build: &'static str,
    kind: Kind,
    device: &'a str,
    shape: Option<&'a str>,
    available: bool,
    #[serde(flatten)]
    content: Content<F>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content<F> {
    Figures(F),
    Reason { reason: String },
}

/// The output of lines and progress.
#[derive(Debug)]
pub struct Report {
    build: &'static str,
}

impl Report {
    /// Creates a report; a debug build prints a warning to standard error.
    pub fn new() -> Self {
        let is_debug = cfg!(debug_assertions);
        if is_debug {
            print::note("This is a debug build: a release build is faster.\n");
        }
        Self { build: if is_debug { "debug" } else { "release" } }
    }

    /// Prints the next step to standard error.
    pub fn progress(&self, what: &str) {
        print::note(&format!("{what} …\n"));
    }

    /// Prints a line.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn line<F: Serialize>(
        &self,
        kind: Kind,
        device: &str,
        shape: Option<&str>,
        figures: Result<F, String>,
    ) -> Result<(), print::Error> {
        if let Err(reason) = &figures {
            print::note(&format!("not measured: {reason}\n"));
        }
        let line = Line {
            schema: SCHEMA,
            headroom: env!("CARGO_PKG_VERSION"),
            build: self.build,
            kind,
            device,
            shape,
            available: figures.is_ok(),
            content: figures.map_or_else(|reason| Content::Reason { reason }, Content::Figures),
        };
        print::data(&(serde_json::to_string(&line).map_err(io::Error::from)? + "\n"))
    }
}
