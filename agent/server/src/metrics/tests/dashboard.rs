//! Tests of `docs/grafana/headroom.json`: the metrics and labels of its panels must exist in the table.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    super::{Family, Kind, families},
    repository,
};

/// Labels that Prometheus adds to each target.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];
/// The number of columns in Grafana's grid.
const COLUMNS: u64 = 24;

fn dashboard() -> Value {
    let path = repository().join("docs/grafana/headroom.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("the dashboard is JSON")
}

fn is_word(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// Returns each occurrence of a metric of the agent: the text before it, its name, and the text after it.
fn named(expression: &str) -> Vec<(&str, &str, &str)> {
    let starts = expression.match_indices("headroom_").map(|(start, _)| start);
    starts
        .map(|start| {
            let (before, rest) = expression.split_at(start);
            let end = rest.find(|char| !is_word(char)).unwrap_or(rest.len());
            (before, &rest[..end], &rest[end..])
        })
        .collect()
}

/// Returns the names of labels in a selector such as `{a="x", b=~"y"}` without its braces; values must not contain
/// commas.
fn matched(selector: &str) -> Vec<&str> {
    selector.split(',').map(|pair| pair.trim().split(['=', '!']).next().unwrap_or("")).collect()
}

/// Returns the errors of an expression and its legend.
fn wrong_expression(expression: &str, legend: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let mut labels: BTreeSet<&str> = OF_PROMETHEUS.into();
    for (before, name, after) in named(expression) {
        let Some(Family { kind, labels: of_family, .. }) = families().find(|family| family.name == name) else {
            findings.push(format!("no family is called {name}"));
            continue;
        };
        labels.extend(*of_family);
        let selector = after.strip_prefix('{').and_then(|after| after.split_once('}')).map(|(selector, _)| selector);
        for label in selector.into_iter().flat_map(matched) {
            if !of_family.contains(&label) && !OF_PROMETHEUS.contains(&label) {
                findings.push(format!("{name} has no label {label}"));
            }
        }
        if selector.is_none_or(|selector| !selector.contains("instance=~\"$rig\"")) && name != "headroom_build_info" {
            findings.push(format!("{name} is queried for every rig, not the chosen one"));
        }
        let is_rated = before.ends_with("increase(") || before.ends_with("rate(");
        if is_rated != (*kind == Kind::Counter) && !name.starts_with("headroom_run_energy") {
            findings.push(format!("{name}: exactly the counters have to be rated"));
        }
    }
    if labels.len() == OF_PROMETHEUS.len() && named(expression).is_empty() {
        findings.push(format!("{expression} names no metric of ours"));
    }
    for keyword in ["by (", "on (", "group_left ("] {
        for (start, _) in expression.match_indices(keyword) {
            let list = expression[start + keyword.len()..].split(')').next().unwrap_or("");
            for label in list.split(',').map(str::trim).filter(|label| !labels.contains(label)) {
                findings.push(format!("nothing in {expression} has a label {label}"));
            }
        }
    }
    for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap_or("")) {
        if !labels.contains(label) {
            findings.push(format!("{legend} names {label}, which {expression} has not"));
        }
    }
    findings
}

/// Returns the errors in the positions of panels.
fn wrong_places(panels: &[Value]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = &panel["title"];
        if !panel["id"].as_u64().is_some_and(|id| id > 0 && ids.insert(id)) {
            findings.push(format!("{title} has no number, or another panel's"));
        }
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap_or(u64::MAX / 4));
        if w == 0 || h == 0 || x + w > COLUMNS || y + h > 1000 {
            findings.push(format!("{title} is not on the grid"));
            continue;
        }
        let places = (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y)));
        // Inserts all positions, even if one is a duplicate.
        if places.filter(|place| !taken.insert(*place)).count() > 0 {
            findings.push(format!("{title} lies over another panel"));
        }
    }
    findings
}

fn wrong_panel(panel: &Value) -> Vec<String> {
    let title = &panel["title"];
    let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
    let mut findings = Vec::new();
    if targets.is_empty() != (panel["type"] == "row") {
        findings.push("a row with questions, or a panel without".to_owned());
    }
    let mut letters = BTreeSet::new();
    for target in targets {
        if !letters.insert(target["refId"].as_str()) || target["datasource"]["uid"] != "${datasource}" {
            findings.push("a question without a letter of its own, or to another source".to_owned());
        }
        let text = |name: &str| target[name].as_str().unwrap_or_default();
        findings.extend(wrong_expression(text("expr"), text("legendFormat")));
    }
    findings.into_iter().map(|finding| format!("{title}: {finding}")).collect()
}

/// Returns variables that are used but neither defined here nor by Grafana.
fn unknown_variables(text: &str, defined: &[&str]) -> Vec<String> {
    let uses = text.split('$').skip(1).map(|rest| rest.trim_start_matches('{'));
    let names = uses.map(|rest| rest.split(|char| !is_word(char)).next().unwrap_or(""));
    names.filter(|name| !name.starts_with("__") && !defined.contains(name)).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() > 20, "the walk finds the panels");
    let mut findings: Vec<String> = panels.iter().flat_map(wrong_panel).collect();
    findings.extend(wrong_places(panels));
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let mut defined: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().expect("a name")).collect();
    for variable in variables.iter().filter(|variable| variable["type"] == "query") {
        let query = variable["query"]["query"].as_str().expect("a query");
        let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).expect("label_values");
        let (selector, label) = inner.rsplit_once(", ").expect("a metric and a label");
        findings.extend(wrong_expression(selector, &format!("{{{{{label}}}}}")));
    }
    // The inputs that Grafana requests on import.
    let inputs = dashboard["__inputs"].as_array().expect("inputs");
    defined.extend(inputs.iter().map(|input| input["name"].as_str().expect("a name")));
    for name in ["datasource", "rig", "gpu", "run", "DS_PROMETHEUS"] {
        assert!(defined.contains(&name), "{name} is not defined");
    }
    findings.extend(unknown_variables(&dashboard.to_string(), &defined));
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn the_dashboard_names_the_kinds_of_panel_that_it_needs() {
    let dashboard = dashboard();
    let kinds = |list: &Value, name: &str| -> BTreeSet<String> {
        list.as_array().expect("a list").iter().map(|one| one[name].as_str().expect("a kind").to_owned()).collect()
    };
    let mut shown = kinds(&dashboard["panels"], "type");
    shown.remove("row");
    let required = dashboard["__requires"].as_array().expect("a list").iter();
    let required: Vec<Value> = required.filter(|one| one["type"] == "panel").cloned().collect();
    assert_eq!(shown, kinds(&Value::Array(required), "id"));
}

#[test]
fn must_find_what_a_dashboard_gets_wrong() {
    let good = r#"headroom_gpu_power_watts{instance=~"$rig", gpu=~"$gpu"}"#;
    assert_eq!(wrong_expression(good, "{{instance}} {{uuid}}"), [""; 0]);
    for (expression, legend) in [
        ("up", ""),
        (r#"headroom_gpu_power_kilowatts{instance=~"$rig"}"#, ""),
        (r#"headroom_gpu_power_watts{instance=~"$rig", card="1"}"#, ""),
        (r#"headroom_gpu_power_watts{gpu=~"$gpu"}"#, ""),
        ("headroom_gpu_power_watts", ""),
        (good, "{{reason}}"),
        (r#"rate(headroom_gpu_power_watts{instance=~"$rig"}[5m])"#, ""),
        (r#"sum(headroom_gpu_energy_joules_total{instance=~"$rig"})"#, ""),
        (r#"sum by (currency) (headroom_gpu_power_watts{instance=~"$rig"})"#, ""),
        (r#"headroom_viewers{instance=~"$rig"} * on (gpu) headroom_driver_up{instance=~"$rig"}"#, ""),
    ] {
        assert_eq!(wrong_expression(expression, legend).len(), 1, "{expression}");
    }
    let panel = |id: u64, x: u64, w: u64| serde_json::json!({"title": "t", "id": id, "gridPos": {"x": x, "y": 0, "w": w, "h": 2}});
    assert_eq!(wrong_places(&[panel(1, 0, 12), panel(2, 12, 12)]), [""; 0]);
    for pair in
        [[panel(1, 0, 12), panel(1, 12, 12)], [panel(1, 0, 13), panel(2, 12, 12)], [panel(1, 0, 1), panel(2, 12, 13)]]
    {
        assert_eq!(wrong_places(&pair).len(), 1, "{pair:?}");
    }
    assert_eq!(unknown_variables("$rig ${gpu} $__range ${DS}x", &["rig", "gpu"]), ["DS"]);
    assert_eq!(wrong_panel(&serde_json::json!({"title": "t", "type": "stat"})).len(), 1);
}
