//! What a descriptor is once it is finalized.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    SUCCESS,
    descriptor::{Attributes, Descriptor, Values},
    graph::{Graph, Operation, Tensor, Work},
    table::{self, Elements, Fold, Kind, Mode},
    unknown, wrong,
};
use crate::{Cudnn, Determinism, Engine, state::Answer};

/// CUDNN_KNOB_TYPE_KERNEL_CFG.
const KERNEL_CFG: i64 = 24;
/// CUDNN_NUMERICAL_NOTE_TENSOR_CORE.
const TENSOR_CORE: i64 = 0;
/// CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC.
const NONDETERMINISTIC: i64 = 4;
/// CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION.
const RUNTIME_COMPILATION: i64 = 0;

/// What a finalized descriptor is.
#[derive(Clone, Debug)]
pub enum Made {
    /// A tensor.
    Tensor(Tensor),
    /// What a pointwise operation, a product or a reduction does.
    Work(Work),
    /// That with its tensors.
    Operation(Operation),
    /// All of them.
    Graph(Arc<Graph>),
    /// Engines that were asked for.
    Heuristics,
    /// A choice that an engine has.
    Knob,
    /// An engine, alone or with its choices: the same here.
    Chosen(Chosen),
    /// What can be executed.
    Plan(Plan),
    /// What it is executed with.
    Pack(Pack),
}

/// An engine for a graph.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The graph.
    pub graph: Arc<Graph>,
    /// The engine's place in the scenario.
    pub place: usize,
    /// The engine.
    pub engine: Engine,
}

/// What can be executed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What by what.
    pub chosen: Chosen,
    /// The handle that it is for.
    pub handle: usize,
}

/// What a plan is executed with.
#[derive(Clone, Debug)]
pub struct Pack {
    /// Addresses by tensors.
    pub pointers: BTreeMap<i64, u64>,
    /// Where there is room; 0 where there is none.
    pub workspace: u64,
}

/// What finalizing looks at beside the descriptor.
#[derive(Debug)]
pub struct Around<'a> {
    /// The library.
    pub library: &'a Cudnn,
    /// Its handles.
    pub handles: &'a BTreeMap<usize, usize>,
}

/// What a descriptor is, and what it then tells.
pub fn made(of: &Descriptor, around: &Around<'_>) -> Result<(Made, Attributes), u32> {
    let made = match of.kind {
        Kind::Tensor => Made::Tensor(tensor(of)?),
        Kind::Pointwise => Made::Work(pointwise(of)?),
        Kind::Matmul => Made::Work(matmul(of)?),
        Kind::Reduction => Made::Work(reduction(of)?),
        Kind::PointwiseOperation | Kind::MatmulOperation | Kind::ReductionOperation | Kind::ReshapeOperation => {
            Made::Operation(operation(of)?)
        }
        Kind::Graph => Made::Graph(Arc::new(graph(of, around)?)),
        Kind::Heuristics => return heuristics(of, around),
        Kind::Engine => return engine(of, around),
        Kind::EngineConfig => return config(of, around),
        Kind::KnobChoice => Made::Knob,
        Kind::Plan => return plan(of, around),
        Kind::VariantPack => Made::Pack(pack(of)?),
    };
    Ok((made, Attributes::new()))
}

/// Floats alone; a comparison's result is of no precision.
fn computes_in(of: &Descriptor, attribute: u32) -> Answer {
    let elements = of.number(attribute);
    match Elements::of(elements) {
        Some(Elements::Float | Elements::Boolean) => Ok(()),
        _ => Err(unknown(format_args!("computing in elements of kind {elements}"))),
    }
}

fn tensor(of: &Descriptor) -> Result<Tensor, u32> {
    // What no size can be comes out as 0, which none may be.
    let sizes = |attribute| of.numbers(attribute).iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
    let elements = of.number(table::TENSOR_DATA_TYPE);
    let tensor = Tensor {
        uid: of.number(table::TENSOR_UNIQUE_ID),
        dims: sizes(table::TENSOR_DIMENSIONS),
        strides: sizes(table::TENSOR_STRIDES),
        elements: Elements::of(elements).ok_or_else(|| unknown(format_args!("elements of kind {elements}")))?,
        alignment: u64::try_from(of.number(table::TENSOR_BYTE_ALIGNMENT)).unwrap_or(0),
        is_virtual: of.number(table::TENSOR_IS_VIRTUAL) != 0,
        is_by_value: of.number(table::TENSOR_IS_BY_VALUE) != 0,
    };
    tensor.checked()
}

fn pointwise(of: &Descriptor) -> Result<Work, u32> {
    computes_in(of, table::POINTWISE_MATH_PREC)?;
    let mode = of.number(table::POINTWISE_MODE);
    let mode = Mode::of(mode).ok_or_else(|| unknown(format_args!("pointwise mode {mode}")))?;
    if (mode == Mode::GenIndex) != of.has(table::POINTWISE_AXIS) {
        return Err(wrong(format_args!("{mode:?} and an axis do not go together")));
    }
    Ok(Work::Pointwise { mode, axis: usize::try_from(of.number(table::POINTWISE_AXIS)).unwrap_or(usize::MAX) })
}

fn matmul(of: &Descriptor) -> Result<Work, u32> {
    computes_in(of, table::MATMUL_COMP_TYPE)?;
    Ok(Work::Matmul)
}

fn reduction(of: &Descriptor) -> Result<Work, u32> {
    computes_in(of, table::REDUCTION_COMP_TYPE)?;
    let fold = of.number(table::REDUCTION_OPERATOR);
    Ok(Work::Reduction(Fold::of(fold).ok_or_else(|| unknown(format_args!("reduction {fold}")))?))
}

fn operation(of: &Descriptor) -> Result<Operation, u32> {
    use table as t;
    let (work, inputs, output) = match of.kind {
        Kind::MatmulOperation => {
            let inputs = vec![t::OPERATION_MATMUL_ADESC, t::OPERATION_MATMUL_BDESC];
            (Some((t::OPERATION_MATMUL_DESC, Kind::Matmul)), inputs, t::OPERATION_MATMUL_CDESC)
        }
        Kind::ReductionOperation => {
            let inputs = vec![t::OPERATION_REDUCTION_XDESC];
            (Some((t::OPERATION_REDUCTION_DESC, Kind::Reduction)), inputs, t::OPERATION_REDUCTION_YDESC)
        }
        Kind::ReshapeOperation => (None, vec![t::OPERATION_RESHAPE_XDESC], t::OPERATION_RESHAPE_YDESC),
        _ => {
            let mut inputs = vec![t::OPERATION_POINTWISE_XDESC];
            let others = [t::OPERATION_POINTWISE_BDESC, t::OPERATION_POINTWISE_TDESC];
            inputs.extend(others.into_iter().filter(|&other| of.has(other)));
            (Some((t::OPERATION_POINTWISE_PW_DESCRIPTOR, Kind::Pointwise)), inputs, t::OPERATION_POINTWISE_YDESC)
        }
    };
    let factors = [t::OPERATION_POINTWISE_ALPHA1, t::OPERATION_POINTWISE_ALPHA2].map(|factor| of.factor(factor));
    if factors != [1.0; 2] {
        return Err(unknown(format_args!("factors {factors:?} of what an operation is given")));
    }
    let work = match work.map(|(attribute, kind)| of.part(attribute, kind)).transpose()? {
        None => Work::Reshape,
        Some(Made::Work(work)) => *work,
        Some(_) => return Err(wrong("an operation that does nothing")),
    };
    let tensor = |attribute| match of.part(attribute, Kind::Tensor)? {
        Made::Tensor(tensor) => Ok(tensor.clone()),
        _ => Err(wrong("an operation without its tensor")),
    };
    let inputs = inputs.into_iter().map(tensor).collect::<Result<_, u32>>()?;
    Operation { work, inputs, output: tensor(output)? }.checked()
}

fn handle(of: &Descriptor, attribute: u32, around: &Around<'_>) -> Result<usize, u32> {
    let handle = usize::try_from(of.number(attribute)).ok().filter(|handle| around.handles.contains_key(handle));
    handle.ok_or_else(|| wrong(format_args!("a {:?} of a handle that is not there", of.kind)))
}

fn graph(of: &Descriptor, around: &Around<'_>) -> Result<Graph, u32> {
    handle(of, table::OPERATIONGRAPH_HANDLE, around)?;
    let operations = of.parts(table::OPERATIONGRAPH_OPS).iter().map(|part| match part.made() {
        Some(Made::Operation(operation)) => Ok(operation.clone()),
        _ => Err(wrong(format_args!("a graph of a {:?}", part.kind))),
    });
    Graph::new(operations.collect::<Result<_, u32>>()?)
}

fn graph_of(of: &Descriptor, attribute: u32) -> Result<Arc<Graph>, u32> {
    match of.part(attribute, Kind::Graph)? {
        Made::Graph(graph) => Ok(graph.clone()),
        _ => Err(wrong("a graph that is none")),
    }
}

fn chosen(of: &Descriptor, attribute: u32, kind: Kind) -> Result<&Chosen, u32> {
    match of.part(attribute, kind)? {
        Made::Chosen(chosen) => Ok(chosen),
        _ => Err(wrong("an engine that is none")),
    }
}

fn heuristics(of: &Descriptor, around: &Around<'_>) -> Result<(Made, Attributes), u32> {
    if around.library.heuristics != SUCCESS {
        return Err(around.library.heuristics);
    }
    let graph = graph_of(of, table::ENGINEHEUR_OPERATION_GRAPH)?;
    let configs = around.library.engines.iter().enumerate().map(|(place, engine)| {
        let chosen = Chosen { graph: graph.clone(), place, engine: engine.clone() };
        let made = Made::Chosen(chosen.clone());
        let engine = Arc::new(Descriptor::finalized(Kind::Engine, made.clone(), of_engine(&chosen)));
        let mut told = of_config(&chosen);
        told.insert(table::ENGINECFG_ENGINE, Values::Parts(vec![engine]));
        told.insert(table::ENGINECFG_KNOB_CHOICES, Values::Parts(vec![Arc::new(knob(&chosen))]));
        Arc::new(Descriptor::finalized(Kind::EngineConfig, made, told))
    });
    let told = (table::ENGINEHEUR_RESULTS, Values::Parts(configs.collect()));
    Ok((Made::Heuristics, [told].into()))
}

/// What an engine tells.
fn of_engine(chosen: &Chosen) -> Attributes {
    let mut notes = vec![TENSOR_CORE];
    if chosen.engine.determinism == Determinism::Noted {
        notes.push(NONDETERMINISTIC);
    }
    [
        (table::ENGINE_GLOBAL_INDEX, Values::Numbers(vec![index(chosen.place)])),
        (table::ENGINE_NUMERICAL_NOTE, Values::Numbers(notes)),
        (table::ENGINE_BEHAVIOR_NOTE, Values::Numbers(vec![RUNTIME_COMPILATION])),
    ]
    .into()
}

/// What an engine with its choices tells.
fn of_config(chosen: &Chosen) -> Attributes {
    [
        (table::ENGINECFG_WORKSPACE_SIZE, Values::Numbers(vec![number(chosen.engine.workspace_bytes)])),
        (table::ENGINECFG_SHARED_MEMORY_USED, Values::Numbers(vec![48 << 10])),
    ]
    .into()
}

/// The only choice that there is of an engine.
fn knob(chosen: &Chosen) -> Descriptor {
    let told = [
        (table::KNOB_CHOICE_KNOB_TYPE, Values::Numbers(vec![KERNEL_CFG])),
        (table::KNOB_CHOICE_KNOB_VALUE, Values::Numbers(vec![number(chosen.place as u64)])),
    ];
    Descriptor::finalized(Kind::KnobChoice, Made::Knob, told.into())
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// An engine's number, which all but the first share, as the library's do: its choice then tells which.
fn index(place: usize) -> i64 {
    if place == 0 { 2 } else { 1 }
}

fn engine(of: &Descriptor, around: &Around<'_>) -> Result<(Made, Attributes), u32> {
    let graph = graph_of(of, table::ENGINE_OPERATION_GRAPH)?;
    let wanted = of.number(table::ENGINE_GLOBAL_INDEX);
    let mut engines = around.library.engines.iter().enumerate();
    let found = engines.find(|(place, _)| index(*place) == wanted);
    let (place, engine) = found.ok_or_else(|| unknown(format_args!("engine {wanted}")))?;
    let chosen = Chosen { graph, place, engine: engine.clone() };
    let told = of_engine(&chosen);
    Ok((Made::Chosen(chosen), told))
}

fn config(of: &Descriptor, around: &Around<'_>) -> Result<(Made, Attributes), u32> {
    let mut chosen = chosen(of, table::ENGINECFG_ENGINE, Kind::Engine)?.clone();
    for choice in of.parts(table::ENGINECFG_KNOB_CHOICES) {
        let value = choice.number(table::KNOB_CHOICE_KNOB_VALUE);
        let place = usize::try_from(value).ok().filter(|&place| index(place) == index(chosen.place));
        let engine = place.and_then(|place| Some((place, around.library.engines.get(place)?)));
        let engine = engine.filter(|_| choice.number(table::KNOB_CHOICE_KNOB_TYPE) == KERNEL_CFG);
        let (place, engine) = engine.ok_or_else(|| unknown(format_args!("choice {value} of an engine")))?;
        chosen = Chosen { place, engine: engine.clone(), ..chosen };
    }
    let told = of_config(&chosen);
    Ok((Made::Chosen(chosen), told))
}

fn plan(of: &Descriptor, around: &Around<'_>) -> Result<(Made, Attributes), u32> {
    let handle = handle(of, table::EXECUTION_PLAN_HANDLE, around)?;
    let chosen = chosen(of, table::EXECUTION_PLAN_ENGINE_CONFIG, Kind::EngineConfig)?.clone();
    if chosen.engine.plan != SUCCESS {
        return Err(chosen.engine.plan);
    }
    let bytes = Values::Numbers(vec![number(chosen.engine.workspace_bytes)]);
    Ok((Made::Plan(Plan { chosen, handle }), [(table::EXECUTION_PLAN_WORKSPACE_SIZE, bytes)].into()))
}

fn pack(of: &Descriptor) -> Result<Pack, u32> {
    let uids = of.numbers(table::VARIANT_PACK_UNIQUE_IDS);
    let pointers = of.numbers(table::VARIANT_PACK_DATA_POINTERS);
    if uids.len() != pointers.len() || uids.iter().collect::<BTreeSet<_>>().len() != uids.len() {
        return Err(wrong(format_args!("a variant pack of tensors {uids:?} at {} places", pointers.len())));
    }
    Ok(Pack {
        pointers: uids.iter().copied().zip(pointers.iter().map(|pointer| pointer.cast_unsigned())).collect(),
        workspace: of.number(table::VARIANT_PACK_WORKSPACE).cast_unsigned(),
    })
}
