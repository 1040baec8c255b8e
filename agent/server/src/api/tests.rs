//! Tests of the routes, over HTTP. `tests/NAME.rs` tests the routes of `api/NAME.rs`; the others test all routes.

mod alerts;
mod checkpoint;
mod described;
mod refusals;
mod rig;
mod runs;
mod settings;
mod table;
mod training;

use std::collections::BTreeSet;

use headroom_protocol::{
    alert::{Alert, Settings},
    message::Message,
    run::{Iteration, Run, RunRequest, RunStatus},
};
use headroom_text as text;
use serde_json::{Value, json};

use super::{requirement::CONTROL, *};
use crate::{
    fakes::{event, fired, gpu, run},
    tests::talk::Server,
};
use headroom_agent_core::store::{ArchivedGpu, printed};

fn description() -> Value {
    serde_json::from_str(routes::description()).expect("JSON")
}

/// Returns the described methods and paths.
fn described() -> BTreeSet<(String, String)> {
    let description = description();
    let paths = description["paths"].as_object().expect("paths");
    let methods = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").keys().filter(|key| *key != "parameters");
        methods.map(move |method| (method.to_uppercase(), path.clone()))
    });
    methods.collect()
}
