//! Tests of the generated description: against the committed one, and against answers.

use std::fs;

use headroom_protocol::{
    message::Message,
    run::{Run, RunRequest},
};
use headroom_text as text;
use serde_json::{Value, json};

use super::{ROUTES, description as generated};
use crate::{
    fakes::{event, fired, gpu, run},
    tests::talk::Server,
};

fn document() -> Value {
    serde_json::from_str(generated()).expect("JSON")
}

/// `UPDATE_OPENAPI=1` writes the file.
#[test]
fn description_equals_committed_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let mut sorted = document();
    // Whether they are sorted depends on a feature of serde_json, which any package of the workspace can enable.
    sorted.sort_all_objects();
    let written = format!("{sorted:#}\n");
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        fs::write(path, &written).expect("written");
    }
    let committed = fs::read_to_string(path).expect("the file");
    let differences = differences(&document(), &serde_json::from_str(&committed).expect("JSON"), "");
    assert!(differences.is_empty(), "run the test with UPDATE_OPENAPI=1, and review:\n{}", differences.join("\n"));
    assert!(written == committed, "the file has another format: run the test with UPDATE_OPENAPI=1");
}

/// Lists the places at which two values differ.
fn differences(generated: &Value, committed: &Value, at: &str) -> Vec<String> {
    match (generated, committed) {
        (Value::Object(generated), Value::Object(committed)) => {
            let names = generated.keys().chain(committed.keys().filter(|name| !generated.contains_key(*name)));
            let value = |of: &serde_json::Map<String, Value>, name: &str| of.get(name).cloned().unwrap_or_default();
            names
                .flat_map(|name| differences(&value(generated, name), &value(committed, name), &format!("{at}/{name}")))
                .collect()
        }
        _ if generated == committed => vec![],
        _ => vec![format!("{at}: generated {generated}, committed {committed}")],
    }
}

#[test]
fn each_difference_is_listed() {
    let [old, new] = [json!({"a": {"b": 1, "c": [1]}, "d": 1}), json!({"a": {"b": 2, "c": [1]}, "e": 1})];
    let listed = differences(&new, &old, "");
    assert_eq!(listed.len(), 3, "{listed:?}");
    assert!(listed[0].starts_with("/a/b: generated 2, committed 1"), "{listed:?}");
}

/// Returns why a value does not match a schema.
fn mismatch(value: &Value, schema: &Value, at: &str) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let document = document();
        return mismatch(value, document.pointer(reference.trim_start_matches('#')).expect("it resolves"), at);
    }
    if let Some(schemas) = schema["oneOf"].as_array() {
        let n = schemas.iter().filter(|schema| mismatch(value, schema, at).is_none()).count();
        return (n != 1).then(|| format!("{at} matches {n} of {} schemas", schemas.len()));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    let has_type = |name: &&str| match *name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        other => other == "null" && value.is_null(),
    };
    let is_named = schema["enum"].as_array().is_none_or(|names| names.contains(value));
    let is_constant = schema.get("const").is_none_or(|constant| constant == value);
    if !(types.is_empty() || types.iter().any(has_type)) || !is_named || !is_constant {
        return Some(format!("{at} is {value}"));
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let missing = required.filter(|name| value.get(name).is_none()).map(|name| format!("{at} has no {name}"));
    let properties = schema["properties"].as_object().into_iter().flatten();
    let fields = properties.filter_map(|(name, schema)| mismatch(value.get(name)?, schema, &format!("{at}/{name}")));
    let items = value.as_array().into_iter().flatten().filter(|_| schema["items"].is_object());
    let items = items.filter_map(|item| mismatch(item, &schema["items"], &format!("{at}/items")));
    missing.chain(fields).chain(items).next()
}

#[tokio::test]
async fn answers_match_their_schemas() {
    let server = Server::start().await;
    server.place.state.hub.gpus(vec![gpu(0)]);
    let message = Message::from(text::run_not_ended("ab"));
    let notes = vec![Message::plain("one"), message.clone()];
    let order = Some(RunRequest { config: "stories".to_owned(), ..RunRequest::default() });
    let run = Run { order, config_notes: notes, explanation: Some(message), ..run("ab") };
    server.place.made.runs.lock().expect("no panic").push(run);
    server.place.made.events.lock().expect("no panic").push(event(1, "ab"));
    server.place.made.alerts.lock().expect("no panic").push(fired(7));
    let checkpoint = tempfile::NamedTempFile::new().expect("a file");
    *server.place.made.checkpoint.lock().expect("no panic") = Some(checkpoint.path().to_owned());
    let asked = |path: &str| match path {
        "/api/history" => format!("{path}?gpu=GPU-0&from_ms=1&to_ms=2"),
        path => path.replace("{id}", "ab"),
    };
    let read =
        ROUTES.iter().filter(|route| route.method == "GET").map(|route| ("get", route.path, asked(route.path), 200));
    let refused = [
        ("post", "/api/runs/{id}/stop", "/api/runs/none/stop".to_owned(), 404),
        ("delete", "/api/runs/{id}", "/api/runs/ab".to_owned(), 409),
    ];
    for (method, path, asked, status) in read.chain(refused) {
        let answer = server.asked(&method.to_uppercase(), &asked, &server.place.control).await;
        assert_eq!(answer.status, status, "{asked}: {answer:?}");
        let document = document();
        let mut response = &document["paths"][path][method]["responses"][status.to_string()];
        if let Some(reference) = response["$ref"].as_str() {
            response = document.pointer(reference.trim_start_matches('#')).expect("it resolves");
        }
        let content_type = answer.header("content-type").split(';').next().expect("a part");
        let schema = &response["content"][content_type]["schema"];
        assert!(schema.is_object(), "{asked} responds with {content_type}, which is undocumented");
        if content_type == "application/json" {
            let value: Value = serde_json::from_str(&answer.body).expect("JSON");
            assert_eq!(mismatch(&value, schema, &asked), None, "{value:#}");
        }
    }
    server.stop().await;
}

#[test]
fn mismatch_with_a_schema_is_found() {
    let schema = json!({ "$ref": "#/components/schemas/Fired" });
    let good = json!({ "event": 7, "alert": { "on": "memory_above", "percent": 95 }, "time_ms": 1, "value": 96.5 });
    assert_eq!(mismatch(&good, &schema, ""), None);
    for (field, bad) in [
        ("event", Value::Null),
        ("event", json!("7")),
        ("time_ms", json!(-1)),
        ("value", json!("96.5")),
        ("alert", json!({ "on": "memory_above" })),
        ("alert", json!({ "on": "other" })),
    ] {
        let mut fired = good.clone();
        fired[field] = bad;
        assert!(mismatch(&fired, &schema, "").is_some(), "{fired}");
    }
    let mut without = good;
    without.as_object_mut().expect("an object").remove("event");
    assert!(mismatch(&without, &schema, "").is_some());
}
