//! Tests of the state of the machine and of its history.

use super::*;

#[tokio::test]
async fn the_rig_is_reported_as_it_is() {
    let server = Server::start().await;
    server.place.state.hub.gpus(vec![gpu(0), gpu(1)]);
    server.place.made.alerts.lock().expect("no panic").push(fired(7));
    let answer = server.asked("GET", "/api/rig", &server.place.view).await;
    let rig: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!((rig["protocol"].as_u64(), rig["gpus"][1]["uuid"].as_str()), (Some(1), Some("GPU-1")));
    assert_eq!(rig["alerts"][0]["event"].as_u64(), Some(7));
    assert!(rig["telemetry"].is_null() && rig["state"]["driver"]["state"] == "starting", "{rig}");
    for required in description()["components"]["schemas"]["Rig"]["required"].as_array().expect("names") {
        assert!(rig.get(required.as_str().expect("a name")).is_some(), "{required}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_gpu_is_found_by_what_names_it() {
    let server = Server::start().await;
    let ask = async |gpu: &str| {
        server.asked("GET", &format!("/api/history?gpu={gpu}&from_ms=1&to_ms=2"), &server.place.view).await
    };
    let none = ask("0").await;
    assert!(
        none.status == 404 && none.body.contains("This machine has no GPU \\\"0\\\". GPUs: none so far."),
        "{none:?}"
    );
    server.place.state.hub.gpus(vec![gpu(0), gpu(7)]);
    let archived = |uuid: &str| ArchivedGpu { uuid: uuid.to_owned(), name: "Tesla T4".to_owned() };
    *server.place.made.gpus.lock().expect("no panic") =
        vec![archived("GPU-0"), archived("GPU-old"), archived("MIG-GPU-1/2/0")];
    for (named, uuid) in [
        ("GPU-0", "GPU-0"),
        ("0", "GPU-0"),
        ("7", "GPU-7"),
        // A removed GPU still has its history.
        ("GPU-old", "GPU-old"),
        ("MIG-GPU-1%2F2%2F0", "MIG-GPU-1/2/0"),
    ] {
        let answer = ask(named).await;
        assert_eq!(answer.status, 200, "{named}: {answer:?}");
        assert_eq!(serde_json::from_str::<Value>(&answer.body).expect("JSON")["gpu"], uuid, "{named}");
    }
    let named = "0: GPU-0 (NVIDIA GeForce RTX 4070), 7: GPU-7 (NVIDIA GeForce RTX 4070), GPU-old (Tesla T4), no \
                 longer present, MIG-GPU-1/2/0 (Tesla T4), no longer present.";
    for unknown in ["1", "-0", "00000000000000000000", "4294967296", "gpu-0", "GPU-", "all"] {
        let answer = ask(unknown).await;
        assert!(answer.status == 404 && answer.body.contains("no_card") && answer.body.contains(named), "{answer:?}");
    }
    // The list is truncated to a readable length.
    *server.place.made.gpus.lock().expect("no panic") = (0..40).map(|i| archived(&format!("GPU-old-{i}"))).collect();
    let many = ask("1").await;
    assert!(many.body.contains("GPU-old-13") && !many.body.contains("GPU-old-14"), "{many:?}");
    assert!(many.body.contains("and 26 more"), "{many:?}");
    // An unreadable history is reported as such, not as a missing GPU.
    *server.place.made.broken.lock().expect("no panic") = true;
    assert_eq!(ask("1").await.status, 503);
    server.stop().await;
}
