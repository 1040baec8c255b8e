//! Finalizing of descriptors: checks their attributes, and computes what the library derives from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    SUCCESS,
    descriptor::{Attributes, Descriptor, Values},
    finalized::{EngineChoice, FinalizedDescriptor, Pack, Plan},
    graph::{Graph, Operation, Tensor, Work},
    table::{self, AttributeOrigin, Elements, Fold, Kind, Mode},
    unknown, wrong,
};
use crate::{Cudnn, Determinism, state::CallResult};

/// CUDNN_KNOB_TYPE_KERNEL_CFG.
const KERNEL_CFG: i64 = 24;
/// CUDNN_NUMERICAL_NOTE_TENSOR_CORE.
const TENSOR_CORE: i64 = 0;
/// CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC.
const NONDETERMINISTIC: i64 = 4;
/// CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION.
const RUNTIME_COMPILATION: i64 = 0;

#[derive(Debug)]
pub struct FinalizeContext<'a> {
    /// The library in the scenario.
    pub library: &'a Cudnn,
    /// The library's handles.
    pub handles: &'a BTreeMap<usize, usize>,
}

pub fn finalize(descriptor: &mut Descriptor, around: &FinalizeContext<'_>) -> CallResult {
    if descriptor.made().is_some() {
        return Err(wrong(format_args!("a {:?} is finalized twice", descriptor.kind)));
    }
    let of_kind = table::ATTRIBUTES.iter().filter(|attribute| attribute.kind == descriptor.kind);
    for attribute in of_kind.filter(|attribute| attribute.who == AttributeOrigin::Host) {
        if !descriptor.has(attribute.number) {
            return Err(wrong(format_args!("a {:?} is finalized without {}", descriptor.kind, attribute.name)));
        }
    }
    let (made, attributes) = made(descriptor, around)?;
    descriptor.set_finalized(made, attributes);
    Ok(())
}

/// Returns the result of finalizing, and the attributes that the descriptor then has.
fn made(of: &Descriptor, around: &FinalizeContext<'_>) -> Result<(FinalizedDescriptor, Attributes), u32> {
    let made = match of.kind {
        Kind::Tensor => FinalizedDescriptor::Tensor(tensor(of)?),
        Kind::Pointwise => FinalizedDescriptor::Work(pointwise(of)?),
        Kind::Matmul => FinalizedDescriptor::Work(matmul(of)?),
        Kind::Reduction => FinalizedDescriptor::Work(reduction(of)?),
        Kind::PointwiseOperation | Kind::MatmulOperation | Kind::ReductionOperation | Kind::ReshapeOperation => {
            FinalizedDescriptor::Operation(operation(of)?)
        }
        Kind::Graph => FinalizedDescriptor::Graph(Arc::new(graph(of, around)?)),
        Kind::Heuristics => return heuristics(of, around),
        Kind::Engine => return engine(of, around),
        Kind::EngineConfig => return config(of, around),
        Kind::KnobChoice => FinalizedDescriptor::Knob,
        Kind::Plan => return plan(of, around),
        Kind::VariantPack => FinalizedDescriptor::Pack(pack(of)?),
    };
    Ok((made, Attributes::new()))
}

/// Checks that the computation type is float; a comparison has none.
fn computes_in(of: &Descriptor, attribute: u32) -> CallResult {
    let elements = of.number(attribute);
    match Elements::of(elements) {
        Some(Elements::Float | Elements::Boolean) => Ok(()),
        _ => Err(unknown(format_args!("computing in elements of kind {elements}"))),
    }
}

fn tensor(of: &Descriptor) -> Result<Tensor, u32> {
    // An invalid size becomes 0, which is rejected later.
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
        return Err(wrong(format_args!("{mode:?} does not match the axis attribute")));
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
        Some(FinalizedDescriptor::Work(work)) => *work,
        Some(_) => return Err(wrong("the operation's descriptor has the wrong kind")),
    };
    let tensor = |attribute| match of.part(attribute, Kind::Tensor)? {
        FinalizedDescriptor::Tensor(tensor) => Ok(tensor.clone()),
        _ => Err(wrong("the operation lacks a tensor")),
    };
    let inputs = inputs.into_iter().map(tensor).collect::<Result<_, u32>>()?;
    Operation { work, inputs, output: tensor(output)? }.checked()
}

fn handle(of: &Descriptor, attribute: u32, around: &FinalizeContext<'_>) -> Result<usize, u32> {
    let handle = usize::try_from(of.number(attribute)).ok().filter(|handle| around.handles.contains_key(handle));
    handle.ok_or_else(|| wrong(format_args!("the handle of a {:?} does not exist", of.kind)))
}

fn graph(of: &Descriptor, around: &FinalizeContext<'_>) -> Result<Graph, u32> {
    handle(of, table::OPERATIONGRAPH_HANDLE, around)?;
    let operations = of.parts(table::OPERATIONGRAPH_OPS).iter().map(|part| match part.made() {
        Some(FinalizedDescriptor::Operation(operation)) => Ok(operation.clone()),
        _ => Err(wrong(format_args!("a graph of a {:?}", part.kind))),
    });
    Graph::new(operations.collect::<Result<_, u32>>()?)
}

fn graph_of(of: &Descriptor, attribute: u32) -> Result<Arc<Graph>, u32> {
    match of.part(attribute, Kind::Graph)? {
        FinalizedDescriptor::Graph(graph) => Ok(graph.clone()),
        _ => Err(wrong("the descriptor is not a graph")),
    }
}

fn chosen(of: &Descriptor, attribute: u32, kind: Kind) -> Result<&EngineChoice, u32> {
    match of.part(attribute, kind)? {
        FinalizedDescriptor::Chosen(chosen) => Ok(chosen),
        _ => Err(wrong("the descriptor is not an engine")),
    }
}

fn heuristics(of: &Descriptor, around: &FinalizeContext<'_>) -> Result<(FinalizedDescriptor, Attributes), u32> {
    if around.library.heuristics != SUCCESS {
        return Err(around.library.heuristics);
    }
    let graph = graph_of(of, table::ENGINEHEUR_OPERATION_GRAPH)?;
    let configs = around.library.engines.iter().enumerate().map(|(place, engine)| {
        let chosen = EngineChoice { graph: graph.clone(), place, engine: engine.clone() };
        let made = FinalizedDescriptor::Chosen(chosen.clone());
        let engine = Arc::new(Descriptor::finalized(Kind::Engine, made.clone(), of_engine(&chosen)));
        let mut attributes = of_config(&chosen);
        attributes.insert(table::ENGINECFG_ENGINE, Values::Parts(vec![engine]));
        attributes.insert(table::ENGINECFG_KNOB_CHOICES, Values::Parts(vec![Arc::new(knob(&chosen))]));
        Arc::new(Descriptor::finalized(Kind::EngineConfig, made, attributes))
    });
    let attributes = (table::ENGINEHEUR_RESULTS, Values::Parts(configs.collect()));
    Ok((FinalizedDescriptor::Heuristics, [attributes].into()))
}

/// Returns an engine's attributes.
fn of_engine(chosen: &EngineChoice) -> Attributes {
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

/// Returns an engine configuration's attributes.
fn of_config(chosen: &EngineChoice) -> Attributes {
    [
        (table::ENGINECFG_WORKSPACE_SIZE, Values::Numbers(vec![number(chosen.engine.workspace_bytes)])),
        (table::ENGINECFG_SHARED_MEMORY_USED, Values::Numbers(vec![48 << 10])),
    ]
    .into()
}

/// Returns the only knob of an engine.
fn knob(chosen: &EngineChoice) -> Descriptor {
    let attributes = [
        (table::KNOB_CHOICE_KNOB_TYPE, Values::Numbers(vec![KERNEL_CFG])),
        (table::KNOB_CHOICE_KNOB_VALUE, Values::Numbers(vec![number(chosen.place as u64)])),
    ];
    Descriptor::finalized(Kind::KnobChoice, FinalizedDescriptor::Knob, attributes.into())
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Returns an engine's global index. All engines but the first share one, as the library's do; the knob distinguishes
/// them.
fn index(place: usize) -> i64 {
    if place == 0 { 2 } else { 1 }
}

fn engine(of: &Descriptor, around: &FinalizeContext<'_>) -> Result<(FinalizedDescriptor, Attributes), u32> {
    let graph = graph_of(of, table::ENGINE_OPERATION_GRAPH)?;
    let wanted = of.number(table::ENGINE_GLOBAL_INDEX);
    let mut engines = around.library.engines.iter().enumerate();
    let found = engines.find(|(place, _)| index(*place) == wanted);
    let (place, engine) = found.ok_or_else(|| unknown(format_args!("engine {wanted}")))?;
    let chosen = EngineChoice { graph, place, engine: engine.clone() };
    let attributes = of_engine(&chosen);
    Ok((FinalizedDescriptor::Chosen(chosen), attributes))
}

fn config(of: &Descriptor, around: &FinalizeContext<'_>) -> Result<(FinalizedDescriptor, Attributes), u32> {
    let mut chosen = chosen(of, table::ENGINECFG_ENGINE, Kind::Engine)?.clone();
    for choice in of.parts(table::ENGINECFG_KNOB_CHOICES) {
        let value = choice.number(table::KNOB_CHOICE_KNOB_VALUE);
        let place = usize::try_from(value).ok().filter(|&place| index(place) == index(chosen.place));
        let engine = place.and_then(|place| Some((place, around.library.engines.get(place)?)));
        let engine = engine.filter(|_| choice.number(table::KNOB_CHOICE_KNOB_TYPE) == KERNEL_CFG);
        let (place, engine) = engine.ok_or_else(|| unknown(format_args!("choice {value} of an engine")))?;
        chosen = EngineChoice { place, engine: engine.clone(), ..chosen };
    }
    let attributes = of_config(&chosen);
    Ok((FinalizedDescriptor::Chosen(chosen), attributes))
}

fn plan(of: &Descriptor, around: &FinalizeContext<'_>) -> Result<(FinalizedDescriptor, Attributes), u32> {
    let handle = handle(of, table::EXECUTION_PLAN_HANDLE, around)?;
    let chosen = chosen(of, table::EXECUTION_PLAN_ENGINE_CONFIG, Kind::EngineConfig)?.clone();
    if chosen.engine.plan != SUCCESS {
        return Err(chosen.engine.plan);
    }
    let bytes = Values::Numbers(vec![number(chosen.engine.workspace_bytes)]);
    Ok((FinalizedDescriptor::Plan(Plan { chosen, handle }), [(table::EXECUTION_PLAN_WORKSPACE_SIZE, bytes)].into()))
}

fn pack(of: &Descriptor) -> Result<Pack, u32> {
    let uids = of.numbers(table::VARIANT_PACK_UNIQUE_IDS);
    let pointers = of.numbers(table::VARIANT_PACK_DATA_POINTERS);
    if uids.len() != pointers.len() || uids.iter().collect::<BTreeSet<_>>().len() != uids.len() {
        return Err(wrong(format_args!("a variant pack has tensors {uids:?} and {} pointers", pointers.len())));
    }
    Ok(Pack {
        pointers: uids.iter().copied().zip(pointers.iter().map(|pointer| pointer.cast_unsigned())).collect(),
        workspace: of.number(table::VARIANT_PACK_WORKSPACE).cast_unsigned(),
    })
}
