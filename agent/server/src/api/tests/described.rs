//! Tests that the server reads the described parameters and enforces the described bounds: required parameters, maximum
//! values, and keys of bodies.

use serde_json::{Value, json};

use super::*;

/// Names and values of a query.
type Values = &'static [(&'static str, &'static str)];

/// Described paths, requested paths, and their valid queries.
const ASKED: [(&str, &str, Values); 3] = [
    ("/api/history", "/api/history", &[("gpu", "GPU-0"), ("from_ms", "1"), ("to_ms", "2")]),
    ("/api/runs", "/api/runs", &[]),
    ("/api/runs/{id}/events", "/api/runs/ab/events", &[]),
];

async fn served() -> Server {
    let server = Server::start().await;
    server.place.state.hub.gpus(vec![gpu(0)]);
    server.place.made.runs.lock().expect("no panic").push(run("ab"));
    server
}

fn query(values: &[(&str, String)]) -> String {
    values.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

#[tokio::test]
async fn parameters_have_the_bounds_that_are_described() {
    let server = served().await;
    let status = async |path: &str, values: &[(&str, String)]| {
        server.asked("GET", &format!("{path}?{}", query(values)), &server.place.view).await.status
    };
    for (described, path, given) in ASKED {
        let given: Vec<(&str, String)> = given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        assert_eq!(status(path, &given).await, 200, "{path}");
        let description = description();
        let parameters = description["paths"][described]["get"]["parameters"].as_array().expect("parameters");
        let mut n_bounds = 0;
        for parameter in parameters {
            let name = parameter["name"].as_str().expect("a name");
            let without: Vec<_> = given.iter().filter(|(of, _)| *of != name).cloned().collect();
            let with = |value: String| {
                let mut values = without.clone();
                if name == "from_ms" {
                    // `to_ms` must exceed `from_ms`.
                    values.retain(|(of, _)| *of != "to_ms");
                    values.push(("to_ms", i64::MAX.to_string()));
                }
                values.push((name, value));
                values
            };
            let expected = if parameter["required"] == true { 400 } else { 200 };
            assert_eq!(status(path, &without).await, expected, "{path} without {name}");
            let schema = &parameter["schema"];
            if schema["type"] == "integer" {
                let maximum = schema["maximum"].as_u64().unwrap_or_else(|| panic!("{name} has no maximum"));
                assert_eq!(status(path, &with(maximum.to_string())).await, 200, "{path} {name}");
                let more = (u128::from(maximum) + 1).to_string();
                assert_eq!(status(path, &with(more)).await, 400, "{path} {name}");
                n_bounds += 1;
            } else if let Some(longest) = schema["maxLength"].as_u64() {
                let text = |n: u64| "x".repeat(usize::try_from(n).expect("small"));
                assert_eq!(status(path, &with(text(longest))).await, 404, "{path} {name}: the name does not exist");
                assert_eq!(status(path, &with(text(longest + 1))).await, 400, "{path} {name}");
                n_bounds += 1;
            }
        }
        assert!(n_bounds > 0, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn bodies_have_the_keys_and_bounds_that_are_described() {
    let server = served().await;
    let schemas = description()["components"]["schemas"].clone();
    let schema = |name: &str| schemas[name].clone();
    let pair =
        description()["paths"]["/api/pair"]["post"]["requestBody"]["content"]["application/json"]["schema"].clone();
    let send = async |method: &str, path: &str, body: &Value| {
        let bearer = format!("Authorization: Bearer {}", server.place.control);
        let origin = format!("Origin: {}", server.origin());
        server.sent(method, path, &[&bearer, &origin, "If-Match: *"], &body.to_string()).await
    };
    for (method, path, good, schema) in [
        ("POST", "/api/runs", json!({"config": "stories"}), schema("Order")),
        ("PUT", "/api/settings", json!({"alerts": []}), schema("Settings")),
        ("POST", "/api/pair", json!({"code": "x", "name": "y"}), pair),
    ] {
        assert_eq!(schema["additionalProperties"], false, "{path}");
        let as_good = send(method, path, &good).await;
        assert!(!as_good.body.contains("bad_request"), "{path}: {as_good:?}");
        let with = |key: &str, value: Value| {
            let mut body = good.clone();
            body[key] = value;
            body
        };
        let unknown = send(method, path, &with("unknown", json!(1))).await;
        assert!(unknown.status == 400 && unknown.body.contains("bad_request"), "{path}: {unknown:?}");
        for required in schema["required"].as_array().expect("names").iter().filter_map(Value::as_str) {
            let mut body = good.clone();
            body.as_object_mut().expect("an object").remove(required);
            assert_eq!(send(method, path, &body).await.status, 400, "{path} without {required}");
        }
        // The run manager and the token file check the names of runs and devices.
        if path != "/api/settings" {
            continue;
        }
        for (key, property) in schema["properties"].as_object().expect("properties") {
            let (most, more) = if let Some(maximum) = property["maximum"].as_f64() {
                (json!(maximum), json!(maximum + 1.0))
            } else if let Some(longest) = property["maxLength"].as_u64() {
                let text = |n: u64| json!("x".repeat(usize::try_from(n).expect("small")));
                (text(longest), text(longest + 1))
            } else {
                continue;
            };
            let as_most = send(method, path, &with(key, most)).await;
            assert!(!as_most.body.contains("bad_request"), "{path} {key}: {as_most:?}");
            let beyond = send(method, path, &with(key, more)).await;
            assert_ne!(beyond.status, as_good.status, "{path} {key}: {beyond:?}");
        }
    }
    for rule in RULES {
        let mut alert = serde_json::to_value(rule).expect("JSON");
        let name = alert["on"].as_str().expect("a name").to_owned();
        let kept = send("PUT", "/api/settings", &json!({ "alerts": [alert] })).await;
        assert_eq!(kept.status, 200, "{name}: {kept:?}");
        alert["unknown"] = json!(1);
        let answer = send("PUT", "/api/settings", &json!({ "alerts": [alert] })).await;
        assert_eq!(answer.status, 400, "{name}: {answer:?}");
        let described = description();
        let reference = described["components"]["schemas"]["Alert"]["discriminator"]["mapping"][&name].as_str();
        let schema = described.pointer(reference.expect("a reference").trim_start_matches('#')).expect("a schema");
        assert_eq!(schema["additionalProperties"], false, "{name}");
    }
    server.stop().await;
}

#[tokio::test]
async fn each_described_query_parameter_is_read() {
    let server = Server::start().await;
    let mut n_parameters = 0;
    for (path, operations) in description()["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let described = operation["parameters"].as_array().into_iter().flatten();
            let described: Vec<&Value> = described.filter(|parameter| parameter["in"] == "query").collect();
            let name = |parameter: &Value| parameter["name"].as_str().expect("a name").to_owned();
            for invalid in &described {
                let value =
                    |parameter: &Value| match (name(parameter) == name(invalid), &parameter["schema"]["minimum"]) {
                        (true, _) => "~".to_owned(),
                        (false, Value::Number(minimum)) => minimum.to_string(),
                        (false, _) => parameter["schema"]["default"].as_str().unwrap_or("GPU-0").to_owned(),
                    };
                let pairs: Vec<String> =
                    described.iter().map(|parameter| format!("{}={}", name(parameter), value(parameter))).collect();
                let address = format!("{}?{}", path.replace("{id}", "ab"), pairs.join("&"));
                let answer = server.asked(&method.to_uppercase(), &address, &server.place.control).await;
                let body: Value = serde_json::from_str(&answer.body).expect("JSON");
                let says = body["message"].as_str().unwrap_or_default();
                assert!(answer.status == 400 && says.starts_with(&name(invalid)), "{method} {address}: {answer:?}");
                n_parameters += 1;
            }
        }
    }
    assert_eq!(n_parameters, 8);
    // The parameter belongs to GET.
    let answer = server.asked("POST", "/api/runs?limit=5", &server.place.control).await;
    assert!(answer.status == 400 && answer.body.contains("this path accepts: none"), "{answer:?}");
    server.stop().await;
}

/// One rule of each kind.
const RULES: [Alert; 5] = [
    Alert::TemperatureAbove { celsius: 85 },
    Alert::MemoryAbove { percent: 95 },
    Alert::NoProgress { minutes: 10 },
    Alert::GpuLost,
    Alert::RunFailed,
];

#[test]
fn every_rule_has_its_fields_in_the_description() {
    // This match does not compile until a new kind of rule is added to the list.
    let place = |rule: &Alert| match rule {
        Alert::TemperatureAbove { .. } => 0,
        Alert::MemoryAbove { .. } => 1,
        Alert::NoProgress { .. } => 2,
        Alert::GpuLost => 3,
        Alert::RunFailed => 4,
    };
    let schemas = &description()["components"]["schemas"];
    let alert = &schemas["Alert"];
    assert_eq!(alert["discriminator"]["propertyName"], "on");
    let mapping = alert["discriminator"]["mapping"].as_object().expect("a mapping");
    assert_eq!((mapping.len(), alert["oneOf"].as_array().map(Vec::len)), (RULES.len(), Some(RULES.len())));
    for (at, rule) in RULES.iter().enumerate() {
        assert_eq!(place(rule), at);
        let rule = serde_json::to_value(rule).expect("JSON");
        let on = rule["on"].as_str().expect("a name");
        let reference = mapping[on].as_str().expect("a reference");
        assert!(alert["oneOf"].as_array().is_some_and(|list| list.iter().any(|one| one["$ref"] == reference)), "{on}");
        let schema = &schemas[reference.strip_prefix("#/components/schemas/").expect("a schema of ours")];
        assert_eq!(schema["properties"]["on"]["const"], on);
        let fields: Vec<&String> = rule.as_object().expect("an object").keys().collect();
        let described: Vec<&String> = schema["properties"].as_object().expect("properties").keys().collect();
        assert_eq!(fields, described, "{on}");
        let required: Vec<&str> =
            schema["required"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
        assert!(fields.iter().all(|field| required.contains(&field.as_str())), "{on}");
    }
}
