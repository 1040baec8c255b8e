//! The table of REST routes: what each requires, its handler and its description.

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use axum::{
    http::header,
    response::{IntoResponse as _, Response},
    routing::{self, MethodRouter},
};
use utoipa::{
    PartialSchema as _,
    openapi::{Object, Required, path::Operation, schema::Type},
};

use super::{
    alerts, checkpoint, export,
    openapi::{
        self, Description, array_of, binary, describe, empty, integer, of, query, schema, string, tag, with_content,
        with_json,
    },
    pair,
    requirement::{CONTROL, RouteRequirement, VIEW},
    rig, runs, settings, tokenizer, training,
};
use crate::{State, metrics};

/// An entry of the route table.
pub struct Route {
    /// The method, in upper case.
    pub method: &'static str,
    /// The path, as axum and OpenAPI write it.
    pub path: &'static str,
    /// The requirement, checked before the handler runs.
    pub needs: RouteRequirement,
    /// The handler.
    pub answer: fn() -> MethodRouter<Arc<State>>,
    /// The description, except for what the requirement implies.
    pub description: fn() -> Description,
}

/// All routes. A `GET` route answers `HEAD` too.
pub const ROUTES: &[Route] = &[
    Route {
        method: "GET",
        path: "/api/rig",
        needs: VIEW,
        answer: || routing::get(rig::now),
        description: || {
            describe("rig", "Current state: GPUs, their latest readings, driver and history.")
                .answers(200, with_json("All metrics of one moment.", of::<schema::Rig>()))
        },
    },
    Route {
        method: "GET",
        path: "/api/history",
        needs: VIEW,
        answer: || routing::get(rig::history),
        description: || {
            let gpu = "The UUID of a present or former GPU, or the index of a present one. Ignored and optional if \
                       group is host.";
            let group = "Metrics of a GPU at ten readings per second, its slow metrics at one per second, or metrics \
                         of the machine.";
            let gpus = string().min_length(Some(1)).max_length(Some(96)).pattern(Some("^[0-9A-Za-z_/-]+$"));
            let groups = string().enum_values(Some(["fast", "slow", "host"])).default(Some("fast".into()));
            let time_max = i64::MAX as u64;
            describe("history", "History of a GPU or of the machine over a time range.")
                .takes(query("gpu", gpus).required(Required::True).description(Some(gpu)))
                .takes(query("group", groups).description(Some(group)))
                .takes(
                    query("from_ms", integer(0, time_max - 1))
                        .required(Required::True)
                        .description(Some("Before to_ms.")),
                )
                .takes(query("to_ms", integer(1, time_max)).required(Required::True).description(Some("Not included.")))
                .takes(query("points", integer(1, 2000).default(Some(500.into()))))
                .answers(200, with_json("Minimum, mean and maximum of each point.", of::<schema::History>()))
                .refuses(&[404])
        },
    },
    Route {
        method: "GET",
        path: "/api/runs",
        needs: VIEW,
        answer: || routing::get(runs::list),
        description: || {
            describe("runs", "Runs, newest first. Active runs are included at any age.")
                .takes(query("limit", integer(1, 1000).default(Some(100.into()))))
                .answers(200, with_json("Runs.", array_of::<schema::Run>()))
        },
    },
    Route {
        method: "POST",
        path: "/api/runs",
        needs: CONTROL,
        answer: || routing::post(training::order),
        description: || {
            let location = openapi::response_header("The run's address.", string());
            describe(
                "start_run",
                "Start a training run. The run is added at the end of its device's queue. Needs the scope control.",
            )
            .details(
                "Only names that GET /api/training lists are valid. Unknown keys are rejected. A config that the \
                 trainer rejects causes 422, with the position of the error.",
            )
            .reads(of::<schema::Order>())
            .answers(201, with_json("The run, queued or running.", of::<schema::Run>()).header("Location", location))
            .refuses(&[409, 422])
        },
    },
    Route {
        method: "GET",
        path: "/api/training",
        needs: VIEW,
        answer: || routing::get(training::training),
        description: || {
            describe("training", "Names of the configs, data sets and devices that a request may use.").answers(
                200,
                with_json("Names that a request may use, and why no run can be started.", of::<schema::Training>()),
            )
        },
    },
    Route {
        method: "POST",
        path: "/api/runs/{id}/stop",
        needs: CONTROL,
        answer: || routing::post(training::stop),
        description: || {
            describe(
                "stop_run",
                "Stop a run of the agent. It finishes its iteration and saves a checkpoint. A queued run leaves the \
                 queue. A second request after 30 seconds ends the run at once. Needs the scope control.",
            )
            .answers(202, with_json("The run in its current state.", of::<schema::Run>()))
            .refuses(&[404, 409])
        },
    },
    Route {
        method: "POST",
        path: "/api/runs/{id}/resume",
        needs: CONTROL,
        answer: || routing::post(training::resume),
        description: || {
            describe(
                "resume_run",
                "Resume a run of the agent from its checkpoint, at the end of its device's queue. Without a \
                 checkpoint it starts over with the same settings. Needs the scope control.",
            )
            .answers(202, with_json("The run, queued or running.", of::<schema::Run>()))
            .refuses(&[404, 409, 422])
        },
    },
    Route {
        method: "GET",
        path: "/api/runs/{id}/checkpoint",
        needs: VIEW,
        answer: || routing::get(checkpoint::answer),
        description: || {
            let range = "One range. Several ranges are rejected.";
            let if_match = "The ETag of the checkpoint of earlier ranges. 412: a newer checkpoint has replaced it.";
            let if_range = "An ETag. If a newer checkpoint has replaced the file, the response is that whole \
                            checkpoint instead of the range.";
            let part = |description| {
                with_content(description, "application/octet-stream", binary()).header_ref("ETag", tag("CheckpointTag"))
            };
            describe(
                "run_checkpoint",
                "The newest checkpoint of a run that the agent started, as a whole or as one byte range. Supports \
                 HEAD. A safetensors file, weights first. For tokens of scope view its config is redacted, which \
                 changes the ETag.",
            )
            .takes(openapi::header("Range", range, string().pattern(Some("^bytes=([0-9]+-[0-9]*|-[0-9]+)$"))))
            .takes(openapi::header("If-Match", if_match, string()))
            .takes(openapi::header("If-Range", if_range, string()))
            .answers(200, part("The whole file."))
            .answers(206, part("The range in Content-Range."))
            .answers(304, empty("The file matches If-None-Match."))
            .refuses(&[404, 409, 412, 416])
        },
    },
    Route {
        method: "GET",
        path: "/api/tokenizers/gpt2",
        needs: VIEW,
        answer: || routing::get(tokenizer::answer),
        description: || {
            let file = "The file. Clients may cache it: it changes only with the agent's version.";
            let tag = openapi::response_header("Strong ETag of this file.", string());
            describe(
                "gpt2_tokenizer",
                "GPT-2's tokenizer as tokenizer.json. Checkpoints with its vocabulary contain only its name. Supports \
                 HEAD.",
            )
            .answers(200, with_json(file, Object::with_type(Type::Object)).header("ETag", tag))
            .answers(304, empty("The file matches If-None-Match."))
        },
    },
    Route {
        method: "GET",
        path: "/api/runs/{id}",
        needs: VIEW,
        answer: || routing::get(runs::one),
        description: || {
            describe("run", "One run.").answers(200, with_json("The run.", of::<schema::Run>())).refuses(&[404])
        },
    },
    Route {
        method: "DELETE",
        path: "/api/runs/{id}",
        needs: CONTROL,
        answer: || routing::delete(runs::delete),
        description: || {
            describe("delete_run", "Delete a run that has ended, and all its data. Needs the scope control.")
                .answers(204, empty("The run is deleted."))
                .refuses(&[404, 409])
        },
    },
    Route {
        method: "GET",
        path: "/api/runs/{id}/events",
        needs: VIEW,
        answer: || routing::get(runs::events),
        description: || {
            let after = query("after", integer(0, u64::MAX).default(Some(0.into())));
            describe(
                "run_events",
                "Events of a run, oldest first. For the next page, pass the number of the last event.",
            )
            .takes(after.description(Some("Number of an event.")))
            .takes(query("limit", integer(1, 1000).default(Some(1000.into()))))
            .answers(200, with_json("Events.", array_of::<schema::Event>()))
            .refuses(&[404])
        },
    },
    Route {
        method: "GET",
        path: "/api/runs/{id}/export.csv",
        needs: VIEW,
        answer: || routing::get(export::csv),
        description: || {
            let table = "The table; a field without a value is empty.";
            describe(
                "export_run",
                "A run's printed iterations and evaluations as a table, as `headroom runs export` writes it: kind, \
                 printed_at_unix_ms, iter, loss, iteration_time_ms, tokens_per_second, mfu_printed_percent, \
                 mfu_percent, train_loss, val_loss, learning_rate, gradient_norm, lines_left_out. A row of kind \
                 left_out replaces at least lines_left_out lines that were not stored. A loss may be NaN, inf or \
                 -inf.",
            )
            .answers(200, with_content(table, "text/csv", string().build()))
            .refuses(&[404])
        },
    },
    Route {
        method: "GET",
        path: "/api/settings",
        needs: VIEW,
        answer: || routing::get(settings::get),
        description: || {
            let settings = with_json("Settings.", of::<schema::Settings>()).header_ref("ETag", tag("SettingsTag"));
            describe("settings", "The owner's settings: alert rules and the energy price.").answers(200, settings)
        },
    },
    Route {
        method: "PUT",
        path: "/api/settings",
        needs: CONTROL,
        answer: || routing::put(settings::put),
        description: || {
            let if_match = "The ETag of the settings to replace, or * for any. 412: the settings have changed since. \
                            428: the header is missing.";
            let kept =
                with_json("The stored settings.", of::<schema::Settings>()).header_ref("ETag", tag("SettingsTag"));
            describe("set_settings", "Replace all settings. Needs the scope control.")
                .takes(openapi::header("If-Match", if_match, string()).required(Required::True))
                .reads(of::<schema::Settings>())
                .answers(200, kept)
                .refuses(&[412, 428])
        },
    },
    Route {
        method: "DELETE",
        path: "/api/alerts/{event}",
        needs: CONTROL,
        answer: || routing::delete(alerts::dismiss),
        description: || {
            describe(
                "dismiss_alert",
                "Dismiss an active alert for all viewers. An alert of a GPU or of a run's progress stays dismissed \
                 until its condition has ended. Needs the scope control.",
            )
            .answers(204, empty("The alert is dismissed."))
            .refuses(&[404])
        },
    },
    Route {
        method: "POST",
        path: "/api/pair",
        needs: RouteRequirement::Origin,
        answer: || routing::post(pair::pair),
        description: || {
            describe(
                "pair",
                "Exchange a pairing code for a device's token. Only for pages of this server: an Origin is required. \
                 A code is valid once, for ten minutes.",
            )
            .reads(schema::PairRequest::schema())
            .answers(200, with_json("The token. It is shown only once.", schema::NewToken::schema()))
        },
    },
    Route {
        method: "GET",
        path: "/api/openapi.json",
        needs: RouteRequirement::Nothing,
        answer: || routing::get(answer_description),
        description: || {
            describe("openapi", "This description.")
                .answers(200, with_json("OpenAPI 3.1.", Object::with_type(Type::Object)))
        },
    },
    Route {
        method: "GET",
        path: "/metrics",
        needs: VIEW,
        answer: || routing::get(metrics::answer),
        description: || {
            let text = with_content("The text format, version 0.0.4.", "text/plain", string().build());
            describe("metrics", "Current metrics for Prometheus.").answers(200, text)
        },
    },
];

impl Route {
    /// The operation of the description.
    pub fn operation(&self) -> Operation {
        (self.description)().operation(self.needs)
    }
}

/// Returns the OpenAPI description of all routes as JSON text.
pub fn description() -> &'static str {
    static JSON: LazyLock<String> = LazyLock::new(|| {
        let operation = |route: &Route| (route.method, route.path, route.operation());
        openapi::json(ROUTES.iter().map(operation))
    });
    &JSON
}

/// `GET /api/openapi.json`.
async fn answer_description() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], description()).into_response()
}
