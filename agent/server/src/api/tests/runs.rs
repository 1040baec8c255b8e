//! Tests of runs, their events and their export.

use super::*;

#[tokio::test]
async fn runs_are_listed_read_exported_and_deleted() {
    let server = Server::start().await;
    let (view, control) = (&server.place.view, &server.place.control);
    let ended = Run { status: RunStatus::exited(0), ..run("cd") };
    server.place.made.runs.lock().expect("no panic").extend([run("ab"), ended]);
    server.place.made.events.lock().expect("no panic").extend((1..=2500).map(|id| event(id, "cd")));
    let list: Vec<Run> =
        serde_json::from_str(&server.asked("GET", "/api/runs?limit=1", view).await.body).expect("runs");
    assert_eq!(list.len(), 1);
    let events = server.asked("GET", "/api/runs/cd/events?after=2000&limit=7", view).await;
    let events: Vec<Value> = serde_json::from_str(&events.body).expect("events");
    assert_eq!((events.len(), events[0]["id"].as_u64()), (7, Some(2001)));
    assert_eq!(server.asked("GET", "/api/runs/ef/events", view).await.status, 404);
    let iteration = |iter| Iteration { iter, loss: Some(2.5), time_ms: 100.0, ..Iteration::default() };
    let line = |iter| printed::PrintedLine { at_ms: 1_000, figures: printed::Figures::Iteration(iteration(iter)) };
    let pages = [1..=1500, 1501..=2500].map(|page| page.map(line).collect()).into();
    server.place.made.printed.lock().expect("no panic").insert("cd".to_owned(), pages);
    let table = server.asked("GET", "/api/runs/cd/export.csv", view).await;
    assert_eq!(table.header("content-disposition"), "attachment; filename=\"headroom-cd.csv\"");
    assert!(table.body.contains(crate::figures::HEAD), "{}", table.body);
    assert_eq!(table.body.matches(",2.5,100,,,,,,,,\n").count(), 2500, "every iteration, over several pieces");
    assert_eq!(server.asked("GET", "/api/runs/ef/export.csv", view).await.status, 404);
    assert_eq!(server.asked("DELETE", "/api/runs/ab", control).await.status, 409, "it continues");
    assert_eq!(server.asked("DELETE", "/api/runs/cd", control).await.status, 204);
    assert_eq!(server.asked("GET", "/api/runs/cd", view).await.status, 404);
    server.stop().await;
}
