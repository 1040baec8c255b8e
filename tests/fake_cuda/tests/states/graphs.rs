//! Tests of the emulated cuDNN itself, without the host: it computes what a graph describes, and rejects invalid calls.

mod attention;
mod library;

use headroom_fake_cuda::{Cudnn, Determinism, Engine, FaultAt, Scenario};
use insta::assert_snapshot;

use crate::child::Child;
use attention::{Case, OF_BACKWARD, OF_FORWARD, Results, backward, forward, uid};
use library::{BFLOAT16, FLOAT, LoadedLibraries, RawHandle, TensorLocation, of};

fn on(test: &'static str, cudnn: Cudnn) -> Child {
    Child::on(test, &Scenario { cudnn, ..Scenario::default() })
}

fn engine(workspace_bytes: u64, determinism: Determinism, wrong: bool) -> Engine {
    Engine { workspace_bytes, millis: 5, determinism, wrong, plan: 0 }
}

fn by(engines: Vec<Engine>) -> Cudnn {
    Cudnn { engines, ..Cudnn::default() }
}

/// Executes operations with the first engine.
fn run(library: &LoadedLibraries, operations: &[RawHandle], tensors: &[(i64, u64)]) -> u32 {
    let configs = library.proposals(library.graph(operations)).expect("proposals");
    let (plan, bytes) = library.plan(configs[0]).expect("a plan");
    library.execute(plan, library.pack(tensors, library.upload(&vec![0_u8; bytes.max(1)])))
}

/// Returns the largest difference.
fn off(values: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(values.len(), expected.len());
    values.iter().zip(expected).map(|(value, expected)| (value - expected).abs()).fold(0.0, |most, difference| {
        // Keeps a NaN.
        if most >= difference { most } else { difference }
    })
}

#[test]
fn graphs_of_attention_compute_attention() {
    on("graphs::graphs_of_attention_compute_attention", Cudnn::default()).run(|_: &mut dyn FnMut(String)| {
        let library = LoadedLibraries::open().expect("it begins");
        let case = Case::new(&library);
        assert_eq!(run(&library, &forward(&library), &case.tensors(OF_FORWARD)), 0);
        assert_eq!(run(&library, &backward(&library), &case.tensors(OF_BACKWARD)), 0);
        let (Results { out, lse, dqkv }, expected) = (case.results(&library), case.expected());
        let off = [off(&out, &expected.out), off(&lse, &expected.lse), off(&dqkv, &expected.dqkv)];
        // Weights, results and gradients have 8 bits.
        assert!(off[0] < 0.01 && off[1] < 1e-5 && off[2] < 0.02, "{off:?}");
    });
}

#[test]
fn an_engine_that_is_wrong_leaves_the_mask_out() {
    let cudnn = by(vec![engine(0, Determinism::Repeats, true)]);
    on("graphs::an_engine_that_is_wrong_leaves_the_mask_out", cudnn).run(|_: &mut dyn FnMut(String)| {
        let library = LoadedLibraries::open().expect("it begins");
        let case = Case::new(&library);
        assert_eq!(run(&library, &forward(&library), &case.tensors(OF_FORWARD)), 0);
        let (out, expected) = (case.out(&library), case.expected().out);
        // Without a mask the first sequence's first token is wrong; the last sequence's last token attends to all
        // tokens anyway.
        let last = expected.len() - 16;
        assert!(off(&out[..16], &expected[..16]) > 0.1 && off(&out[last..], &expected[last..]) < 0.01, "{out:?}");
    });
}

#[test]
fn an_engine_that_does_not_repeat_ends_elsewhere_every_second_time() {
    let test = "graphs::an_engine_that_does_not_repeat_ends_elsewhere_every_second_time";
    let cudnn = by([Determinism::Repeats, Determinism::Noted, Determinism::Hidden]
        .map(|determinism| engine(0, determinism, false))
        .into());
    let said = on(test, cudnn).run(|tell| {
        let library = LoadedLibraries::open().expect("it begins");
        let case = Case::new(&library);
        let configs = library.proposals(library.graph(&forward(&library))).expect("proposals");
        for config in configs {
            let engine = [library.create(2)];
            library.get(config, 300, of::DESCRIPTOR, &mut engine.clone()).expect("its engine");
            let mut notes = [-1_i32; 10];
            let n = library.get(engine[0], 1303, of::NOTE, &mut notes).expect("its notes");
            let (plan, _) = library.plan(config).expect("a plan");
            let outs = [(); 3].map(|()| {
                assert_eq!(library.execute(plan, library.pack(&case.tensors(OF_FORWARD), 0)), 0);
                case.out(&library)
            });
            let differs = |other: &Vec<f64>| other.iter().zip(&outs[0]).filter(|(one, other)| one != other).count();
            tell(format!("notes {:?}: {} and {} elsewhere", &notes[..n], differs(&outs[1]), differs(&outs[2])));
        }
    });
    assert_snapshot!(said.output, @r"
    notes [0]: 0 and 0 elsewhere
    notes [0, 4]: 1 and 0 elsewhere
    notes [0]: 1 and 0 elsewhere
    ");
}

#[test]
fn the_room_that_an_engine_needs_is_overwritten() {
    let cudnn = by(vec![engine(512, Determinism::Repeats, false)]);
    on("graphs::the_room_that_an_engine_needs_is_overwritten", cudnn).run(|_: &mut dyn FnMut(String)| {
        let library = LoadedLibraries::open().expect("it begins");
        let case = Case::new(&library);
        let configs = library.proposals(library.graph(&forward(&library))).expect("proposals");
        let (plan, bytes) = library.plan(configs[0]).expect("a plan");
        let workspace = library.upload(&[0_u8; 1024]);
        assert_eq!(library.execute(plan, library.pack(&case.tensors(OF_FORWARD), workspace)), 0);
        let zeros = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == 0).count();
        let after = library.download::<u8>(workspace, 1024);
        assert_eq!([bytes, zeros(&after[..512]), zeros(&after[512..])], [512, 0, 512]);
    });
}

#[test]
fn an_execution_takes_the_time_that_the_engine_says() {
    let cudnn = by(vec![Engine { millis: 60_000, ..engine(0, Determinism::Repeats, false) }]);
    on("graphs::an_execution_takes_the_time_that_the_engine_says", cudnn).run(|_: &mut dyn FnMut(String)| {
        let library = LoadedLibraries::open().expect("it begins");
        let case = Case::new(&library);
        let event = || {
            let mut event: RawHandle = std::ptr::null_mut();
            let create: unsafe extern "C" fn(*mut RawHandle, u32) -> u32 = library.symbol("cuEventCreate");
            let record: unsafe extern "C" fn(RawHandle, RawHandle) -> u32 = library.symbol("cuEventRecord");
            // SAFETY: as for every call in `library.rs`.
            assert_eq!(unsafe { [create(&raw mut event, 0), record(event, std::ptr::null_mut())] }, [0; 2]);
            event
        };
        let start = event();
        assert_eq!(run(&library, &forward(&library), &case.tensors(OF_FORWARD)), 0);
        let (end, mut millis) = (event(), 0.0_f32);
        let elapsed: unsafe extern "C" fn(*mut f32, RawHandle, RawHandle) -> u32 = library.symbol("cuEventElapsedTime");
        // SAFETY: as for every call in `library.rs`.
        assert_eq!(unsafe { elapsed(&raw mut millis, start, end) }, 0);
        assert!(millis >= 60_000.0, "{millis}");
    });
}

#[test]
fn scenario_refusal_is_returned() {
    let failing = |plan| Engine { plan, ..engine(0, Determinism::Repeats, false) };
    let cudnn = Cudnn { refused: Some(FaultAt { launch: 2, code: 4000 }), ..by(vec![failing(3000), failing(0)]) };
    let test = "graphs::scenario_refusal_is_returned";
    on(test, cudnn).run(|_: &mut dyn FnMut(String)| {
        let library = LoadedLibraries::open().expect("it begins");
        let case = Case::new(&library);
        let configs = library.proposals(library.graph(&forward(&library))).expect("proposals");
        assert_eq!(configs.len(), 2);
        assert_eq!(library.plan(configs[0]).expect_err("no plan"), 3000);
        let (plan, _) = library.plan(configs[1]).expect("a plan");
        let pack = library.pack(&case.tensors(OF_FORWARD), 0);
        assert_eq!([(); 3].map(|()| library.execute(plan, pack)), [0, 4000, 0]);
    });
}

#[test]
fn heuristics_may_know_no_engine() {
    let cudnn = Cudnn { heuristics: 3000, ..Cudnn::default() };
    on("graphs::heuristics_may_know_no_engine", cudnn).run(|_: &mut dyn FnMut(String)| {
        let library = LoadedLibraries::open().expect("it begins");
        let graph = library.graph(&forward(&library));
        assert_eq!(library.proposals(graph).expect_err("no proposals"), 3000);
        assert_eq!(library.name(3000), "CUDNN_STATUS_NOT_SUPPORTED");
    });
}

#[test]
fn heuristics_count_more_than_they_propose() {
    let test = "graphs::heuristics_count_more_than_they_propose";
    on(test, Cudnn::default()).run(|_: &mut dyn FnMut(String)| {
        let library = LoadedLibraries::open().expect("it begins");
        let heuristics = library.heuristics(library.graph(&forward(&library))).expect("heuristics");
        let read = |mut configs: Vec<RawHandle>| library.get(heuristics, 202, of::DESCRIPTOR, &mut configs);
        let configs = |n: u32| (0..n).map(|_| library.create(3)).collect();
        assert_eq!([read(vec![]), read(configs(4)), read(configs(1))], [Ok(4), Ok(3), Ok(1)]);
        assert_eq!(read(vec![library.create(2)]), Err(2000));
    });
}

#[test]
fn a_library_may_not_begin() {
    let cudnn = Cudnn { create: 1001, ..Cudnn::default() };
    on("graphs::a_library_may_not_begin", cudnn).run(|_: &mut dyn FnMut(String)| {
        assert_eq!(LoadedLibraries::open().err(), Some(1001));
    });
}

#[test]
fn an_engine_is_found_again_by_its_number_and_choice() {
    let test = "graphs::an_engine_is_found_again_by_its_number_and_choice";
    let cudnn = by([256, 512, 768].map(|bytes| engine(bytes, Determinism::Repeats, false)).into());
    let said = on(test, cudnn).run(|tell| {
        let library = LoadedLibraries::open().expect("it begins");
        let graph = library.graph(&forward(&library));
        for config in library.proposals(graph).expect("proposals") {
            let (kept, knob) = (library.create(2), library.create(7));
            library.get(config, 300, of::DESCRIPTOR, &mut [kept]).expect("its engine");
            assert_eq!(library.get(config, 302, of::DESCRIPTOR, &mut [knob]), Ok(1));
            let mut number = [-1_i64];
            library.get(kept, 1301, of::INT64, &mut number).expect("its number");
            let again = |knobs: &[RawHandle]| {
                let engine = library.create(2);
                let set = [
                    library.set(engine, 1300, of::DESCRIPTOR, &[graph]),
                    library.set(engine, 1301, of::INT64, &number),
                    library.finalize(engine),
                ];
                let config = library.create(3);
                assert_eq!((set, library.set(config, 300, of::DESCRIPTOR, &[engine])), ([0; 3], 0));
                for _ in knobs {
                    assert_eq!(library.set(config, 302, of::DESCRIPTOR, knobs), 0);
                }
                assert_eq!(library.finalize(config), 0);
                library.plan(config).expect("a plan").1
            };
            tell(format!("{}: {} bytes, without its choice {}", number[0], again(&[knob]), again(&[])));
        }
    });
    assert_snapshot!(said.output, @r"
    2: 256 bytes, without its choice 256
    1: 512 bytes, without its choice 512
    1: 768 bytes, without its choice 512
    ");
}

#[test]
fn an_attribute_is_what_it_was_when_it_was_set() {
    let test = "graphs::an_attribute_is_what_it_was_when_it_was_set";
    on(test, by(vec![engine(0, Determinism::Repeats, false)])).run(|_: &mut dyn FnMut(String)| {
        let library = LoadedLibraries::open().expect("it begins");
        let tensor = |uid| library.tensor(uid, [1, 1, 1, 2], [2, 2, 2, 1], FLOAT, TensorLocation::Memory);
        let (x, y) = (tensor(1), tensor(2));
        let operation = library.pointwise(21, None, &[x], y);
        assert_eq!([library.destroy(x), library.destroy(y), library.destroy(y)], [0, 0, 2000]);
        let graph = library.graph(&[operation]);
        assert_eq!(library.destroy(operation), 0);
        let (plan, _) = library.plan(library.proposals(graph).expect("proposals")[0]).expect("a plan");
        assert_eq!(library.destroy(graph), 0);
        let [from, to] = [library.upload(&[1.5_f32, -2.0]), library.upload(&[0.0_f32; 2])];
        assert_eq!(library.execute(plan, library.pack(&[(1, from), (2, to)], 0)), 0);
        assert_eq!(library.download::<f32>(to, 2), [1.5, -2.0]);
    });
}

#[test]
fn misuse_of_descriptors_is_refused_and_reported() {
    let test = "graphs::misuse_of_descriptors_is_refused_and_reported";
    let said = on(test, Cudnn::default()).run(|tell| {
        let library = LoadedLibraries::open().expect("it begins");
        let tensor = |uid, place| library.tensor(uid, [2, 2, 4, 4], [32, 16, 4, 1], FLOAT, place);
        let [x, y] = [1, 2].map(|uid| tensor(uid, TensorLocation::Memory));
        let mut report = |status: u32| tell(format!("{}: {}", library.name(status), library.refused()));
        report(library.set(x, 906, of::INT64, &[1_i64]));
        report(library.finalize(x));
        let raw = library.create(17);
        report(library.set(raw, 0, of::MODE, &[1_i32]));
        report(library.set(raw, 914, of::INT64, &[1_i64]));
        report(library.set(raw, 906, of::DATA, &[1_i32]));
        report(library.set(raw, 906, of::INT64, &[1_i64, 2]));
        report(library.set::<i64>(raw, 902, of::INT64, &[]));
        report(library.get(raw, 906, of::INT64, &mut [0_i64]).expect_err("not finalized"));
        report(library.finalize(raw));
        report(library.set(library.create(13), 751, of::DESCRIPTOR, &[raw]));
        report(library.set(library.create(13), 751, of::DESCRIPTOR, &[1_usize]));
        let unknown = library.create(0);
        assert_eq!([library.set(unknown, 0, of::MODE, &[17_i32]), library.set(unknown, 1, of::DATA, &[FLOAT])], [0; 2]);
        report(library.finalize(unknown));
        report(library.get(x, 907, of::DATA, &mut [0_i32]).expect_err("another type"));
        report(library.get(x, 202, of::DESCRIPTOR, &mut [raw]).expect_err("another kind"));
        let copy = library.pointwise(21, None, &[x], y);
        let graph = |operations: &[RawHandle], handle: RawHandle| {
            let graph = library.create(15);
            assert_eq!(library.set(graph, 801, of::DESCRIPTOR, operations), 0);
            if !handle.is_null() {
                assert_eq!(library.set(graph, 800, of::HANDLE, &[handle]), 0);
            }
            library.finalize(graph)
        };
        report(graph(&[copy], std::ptr::null_mut()));
        report(graph(&[copy, copy], library.handle));
        report(graph(&[x], library.handle));
        let back = library.pointwise(21, None, &[y], x);
        report(graph(&[copy, back], library.handle));
        let nowhere = library.pointwise(21, None, &[tensor(3, TensorLocation::Nowhere)], y);
        report(graph(&[nowhere], library.handle));
        let other = library.tensor(2, [2, 2, 4, 4], [32, 16, 4, 1], BFLOAT16, TensorLocation::Memory);
        report(graph(
            &[copy, library.pointwise(21, None, &[other], tensor(4, TensorLocation::Memory))],
            library.handle,
        ));
    });
    assert_snapshot!(said.output, @r"
    CUDNN_STATUS_BAD_PARAM: TENSOR_UNIQUE_ID is set of a Tensor that is finalized
    CUDNN_STATUS_BAD_PARAM: a Tensor is finalized twice
    CUDNN_STATUS_BAD_PARAM: POINTWISE_MODE is set of a Tensor
    CUDNN_STATUS_BAD_PARAM: attribute 914
    CUDNN_STATUS_BAD_PARAM: TENSOR_UNIQUE_ID is set as another type than Int64
    CUDNN_STATUS_BAD_PARAM: TENSOR_UNIQUE_ID is set with a count of 2
    CUDNN_STATUS_BAD_PARAM: TENSOR_DIMENSIONS is set with a count of 0
    CUDNN_STATUS_BAD_PARAM: TENSOR_UNIQUE_ID is read of a Tensor that is not finalized
    CUDNN_STATUS_BAD_PARAM: a Tensor is finalized without TENSOR_BYTE_ALIGNMENT
    CUDNN_STATUS_BAD_PARAM: a Tensor is set that is not finalized
    CUDNN_STATUS_BAD_PARAM: there is no such descriptor
    CUDNN_STATUS_NOT_SUPPORTED: pointwise mode 17 is not known here
    CUDNN_STATUS_BAD_PARAM: TENSOR_IS_VIRTUAL is read as another type than Boolean
    CUDNN_STATUS_BAD_PARAM: ENGINEHEUR_RESULTS is read of a Tensor
    CUDNN_STATUS_BAD_PARAM: a Graph is finalized without OPERATIONGRAPH_HANDLE
    CUDNN_STATUS_BAD_PARAM: tensor 2 is given twice, or by value
    CUDNN_STATUS_BAD_PARAM: a graph of a Tensor
    CUDNN_STATUS_BAD_PARAM: a graph goes in a circle
    CUDNN_STATUS_BAD_PARAM: virtual tensor 3 comes from nowhere, or goes nowhere
    CUDNN_STATUS_BAD_PARAM: two tensors are known by 2
    ");
    assert!(said.errors.contains("fake libcuda: cuDNN: "), "{}", said.errors);
}

#[test]
fn misuse_of_an_execution_is_refused_and_reported() {
    let test = "graphs::misuse_of_an_execution_is_refused_and_reported";
    let said = on(test, by(vec![engine(256, Determinism::Repeats, false)])).run(|tell| {
        let library = LoadedLibraries::open().expect("it begins");
        let case = Case::new(&library);
        let config = library.proposals(library.graph(&forward(&library))).expect("proposals")[0];
        let (plan, bytes) = library.plan(config).expect("a plan");
        let (room, tensors) = (library.upload(&[0_u8; 512]), case.tensors(OF_FORWARD));
        assert_eq!(bytes, 256);
        let place = |uid: i64| tensors.iter().find(|(other, _)| *other == uid).expect("it is there").1;
        let mut report = |tensors: &[(i64, u64)], workspace: u64| {
            let status = library.execute(plan, library.pack(tensors, workspace));
            let refused = library.refused();
            // Addresses differ each time.
            let words = refused.split(' ').map(|word| if word.starts_with("0x") { "ADDRESS" } else { word });
            tell(format!("{}: {}", library.name(status), words.collect::<Vec<_>>().join(" ")));
        };
        let but = |uid: i64, address: u64| -> Vec<(i64, u64)> {
            tensors.iter().map(|&(other, at)| (other, if other == uid { address } else { at })).collect()
        };
        report(&tensors, 0);
        report(&tensors, room + 128);
        report(&tensors, room + 512);
        report(&tensors, place(uid::Q));
        report(&tensors[1..], room);
        report(&[&tensors[..], &[(99, room)]].concat(), room);
        report(&but(uid::Q, place(uid::Q) + 2), room);
        report(&but(uid::OUT, place(uid::V)), room);
        report(&but(uid::LSE, place(uid::OUT)), room);
        report(&but(uid::SCALE, place(uid::LSE)), room);
        report(&but(uid::OUT, library.upload(&[0_u8; 256])), room);
        assert_eq!(library.execute(plan, library.pack(&tensors, room)), 0);
    });
    assert_snapshot!(said.output, @r"
    CUDNN_STATUS_BAD_PARAM: 256 bytes of workspace are needed, and there is one at ADDRESS
    CUDNN_STATUS_BAD_PARAM: 256 bytes of workspace are needed, and there is one at ADDRESS
    CUDNN_STATUS_BAD_PARAM: the workspace: an access of 256 bytes at byte 512 of an allocation of 512
    CUDNN_STATUS_BAD_PARAM: tensor 1 lies in the workspace
    CUDNN_STATUS_BAD_PARAM: the variant pack has no tensor 1
    CUDNN_STATUS_BAD_PARAM: the variant pack has tensor 99, which the graph does not have in memory
    CUDNN_STATUS_BAD_PARAM: tensor 1 begins at ADDRESS
    CUDNN_STATUS_BAD_PARAM: tensor 1 lies under a result
    CUDNN_STATUS_BAD_PARAM: tensor 5 lies over another result, or over itself
    CUDNN_STATUS_BAD_PARAM: tensor 11: it is by value, and lies in the GPU's memory
    CUDNN_STATUS_BAD_PARAM: tensor 4: an access of 2 bytes at byte 256 of an allocation of 256
    ");
}
