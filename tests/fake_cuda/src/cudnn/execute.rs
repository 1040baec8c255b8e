//! Execution of any graph: operation by operation in float32, with each result rounded to its tensor's element type.
//! Tensors are in the emulated GPU's memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use headroom_emulator::Emulator;

use super::{
    finalized::Pack,
    graph::{Graph, Operation, Tensor, Work, places},
    table::{Elements, Fold, Mode},
};
use crate::bfloat16;

/// Alignment that the library assumes for its workspace, in bytes.
const WORKSPACE_ALIGNMENT: u64 = 256;
/// The byte with which the workspace is overwritten.
const OVERWRITTEN: u8 = 0x7f;
/// The smallest unit of memory that belongs to one tensor, in bytes.
const PIECE_BYTES: usize = 2;

/// The behaviour of an engine for one execution.
#[derive(Clone, Copy, Debug)]
pub struct EngineBehaviour {
    pub workspace_bytes: u64,
    /// Whether masks are ignored.
    pub wrong: bool,
    /// Whether one result is wrong by one unit of bfloat16.
    pub off: bool,
}

/// A tensor's elements in row-major order.
type Elems = Vec<f32>;

pub fn execute(emulator: &mut Emulator, graph: &Graph, pack: &Pack, way: EngineBehaviour) -> Result<(), String> {
    let addresses = addresses(graph, pack)?;
    apart(graph, &addresses, pack.workspace, way.workspace_bytes)?;
    if way.workspace_bytes > 0 {
        // Overwrites the workspace, so that data of others in it is destroyed.
        let overwritten = emulator.fill(pack.workspace, OVERWRITTEN, way.workspace_bytes);
        overwritten.map_err(|error| format!("the workspace: {error}"))?;
    }
    let mut values: BTreeMap<i64, Elems> = BTreeMap::new();
    for (&uid, tensor) in graph.tensors.iter().filter(|(uid, _)| !graph.given.contains(uid)) {
        values.insert(uid, read(emulator, tensor, addresses[&uid])?);
    }
    for operation in &graph.operations {
        let inputs: Vec<&[f32]> = operation.inputs.iter().map(|input| &*values[&input.uid]).collect();
        let result = computed(operation, &inputs, way.wrong);
        let result = result.into_iter().map(|value| rounded(value, operation.output.elements)).collect();
        values.insert(operation.output.uid, result);
    }
    let mut outputs: Vec<&Tensor> = graph.operations.iter().map(|operation| &operation.output).collect();
    outputs.retain(|output| !output.is_virtual);
    if way.off {
        let narrow = outputs.iter().rfind(|output| output.elements == Elements::Bfloat16);
        let values = narrow.or(outputs.last()).and_then(|output| values.get_mut(&output.uid));
        if let Some(value) = values.and_then(|values| values.first_mut()) {
            *value = f32::from_bits(value.to_bits() ^ (1 << 16));
        }
    }
    outputs.into_iter().try_for_each(|output| write(emulator, output, addresses[&output.uid], &values[&output.uid]))
}

/// Returns the addresses of all tensors that are not virtual.
fn addresses(graph: &Graph, pack: &Pack) -> Result<BTreeMap<i64, u64>, String> {
    let real = graph.tensors.values().filter(|tensor| !tensor.is_virtual);
    let addresses = real.map(|&Tensor { uid, alignment, .. }| {
        let address = pack.pointers.get(&uid).copied().filter(|&address| address != 0);
        let address = address.ok_or_else(|| format!("the variant pack has no tensor {uid}"))?;
        let lies = address.is_multiple_of(alignment) || graph.tensors[&uid].is_by_value;
        lies.then_some((uid, address)).ok_or_else(|| format!("tensor {uid} begins at {address:#x}"))
    });
    let addresses: BTreeMap<i64, u64> = addresses.collect::<Result<_, String>>()?;
    match pack.pointers.keys().find(|uid| !addresses.contains_key(uid)) {
        Some(uid) => Err(format!("the variant pack has tensor {uid}, which the graph does not have in memory")),
        None => Ok(addresses),
    }
}

/// Returns the range of bytes from a tensor's first element to its last.
fn range(tensor: &Tensor, address: u64) -> Range<u64> {
    let last: usize = tensor.dims.iter().zip(&tensor.strides).map(|(dim, stride)| (dim - 1) * stride).sum();
    address..address + (last as u64 + 1) * tensor.element_bytes()
}

/// Returns the units of memory that a tensor's elements occupy.
fn pieces(tensor: &Tensor, address: u64) -> impl Iterator<Item = u64> {
    let bytes = tensor.element_bytes();
    let starts = tensor.places().into_iter().map(move |place| address + place as u64 * bytes);
    starts.flat_map(move |start| (start..start + bytes).step_by(PIECE_BYTES))
}

/// Rejects an invalid workspace, and results that overlap each other or their inputs.
fn apart(graph: &Graph, addresses: &BTreeMap<i64, u64>, workspace: u64, workspace_bytes: u64) -> Result<(), String> {
    if workspace_bytes > 0 && (workspace == 0 || !workspace.is_multiple_of(WORKSPACE_ALIGNMENT)) {
        return Err(format!("{workspace_bytes} bytes of workspace are needed, and there is one at {workspace:#x}"));
    }
    let on_gpu = graph.tensors.values().filter(|tensor| !tensor.is_virtual && !tensor.is_by_value);
    let (results, others): (Vec<_>, Vec<_>) = on_gpu.partition(|tensor| graph.given.contains(&tensor.uid));
    for tensor in results.iter().chain(&others).filter(|_| workspace_bytes > 0) {
        let lies = range(tensor, addresses[&tensor.uid]);
        if lies.start < workspace.saturating_add(workspace_bytes) && workspace < lies.end {
            return Err(format!("tensor {} lies in the workspace", tensor.uid));
        }
    }
    let mut written = BTreeSet::new();
    for tensor in results {
        if !pieces(tensor, addresses[&tensor.uid]).all(|piece| written.insert(piece)) {
            return Err(format!("tensor {} lies over another result, or over itself", tensor.uid));
        }
    }
    for tensor in others {
        if pieces(tensor, addresses[&tensor.uid]).any(|piece| written.contains(&piece)) {
            return Err(format!("tensor {} lies under a result", tensor.uid));
        }
    }
    Ok(())
}

fn read(emulator: &Emulator, tensor: &Tensor, address: u64) -> Result<Elems, String> {
    let tensor_error = |error| format!("tensor {}: {error}", tensor.uid);
    let bytes = range(tensor, address);
    let mut bytes = vec![0; usize::try_from(bytes.end - bytes.start).map_err(|error| tensor_error(error.to_string()))?];
    if tensor.is_by_value {
        let mut none = [0];
        if emulator.read(address, &mut none).is_ok() {
            return Err(tensor_error("it is by value, and lies in the GPU's memory".to_owned()));
        }
        // SAFETY: as for every symbol, valid for reading one element of the tensor's type.
        unsafe { std::ptr::with_exposed_provenance::<u8>(size(address)?).copy_to(bytes.as_mut_ptr(), bytes.len()) };
    } else {
        emulator.read(address, &mut bytes).map_err(|error| tensor_error(error.to_string()))?;
    }
    let all = match tensor.elements {
        Elements::Bfloat16 => bfloat16::wide(&bytes),
        _ => bytes.chunks_exact(4).map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]])).collect(),
    };
    Ok(tensor.places().into_iter().map(|place| all[place]).collect())
}

fn size(value: u64) -> Result<usize, String> {
    usize::try_from(value).map_err(|_| format!("{value} is more than memory"))
}

fn write(emulator: &mut Emulator, tensor: &Tensor, address: u64, values: &[f32]) -> Result<(), String> {
    for (place, &value) in tensor.places().into_iter().zip(values) {
        let (narrow, wide) = (bfloat16::rounded(value), value.to_ne_bytes());
        let bytes: &[u8] = if tensor.elements == Elements::Bfloat16 { &narrow } else { &wide };
        let at = address + place as u64 * tensor.element_bytes();
        emulator.write(at, bytes).map_err(|error| format!("tensor {}: {error}", tensor.uid))?;
    }
    Ok(())
}

fn rounded(value: f32, elements: Elements) -> f32 {
    match elements {
        Elements::Float => value,
        Elements::Bfloat16 => bfloat16::wide(&bfloat16::rounded(value))[0],
        Elements::Int32 => value.trunc(),
        Elements::Boolean => f32::from(u8::from(value != 0.0)),
    }
}

fn computed(operation: &Operation, inputs: &[&[f32]], wrong: bool) -> Elems {
    let Operation { work, inputs: tensors, output } = operation;
    match *work {
        Work::Pointwise { mode: Mode::GenIndex, axis } => {
            let strides: Vec<usize> = (0..output.dims.len()).map(|dim| usize::from(dim == axis)).collect();
            places(&output.dims, &strides).into_iter().map(|index| index as f32).collect()
        }
        Work::Pointwise { mode, .. } => {
            let spread = tensors.iter().zip(inputs).map(|(tensor, values)| spread(values, &tensor.dims, &output.dims));
            pointwise(mode, &spread.collect::<Vec<_>>(), wrong)
        }
        Work::Matmul => {
            let of = |index: usize| (&tensors[index].dims[..], inputs[index]);
            matmul(of(0), of(1), &output.dims)
        }
        Work::Reduction(fold) => {
            let (start, fold): (f32, fn(f32, f32) -> f32) = match fold {
                Fold::Add => (0.0, |sum, value| sum + value),
                Fold::Max => (f32::NEG_INFINITY, f32::max),
            };
            let mut out = vec![start; output.dims.iter().product()];
            let from = &tensors[0].dims;
            for (&value, place) in inputs[0].iter().zip(places(from, &repeated(&output.dims))) {
                out[place] = fold(out[place], value);
            }
            out
        }
        Work::Reshape => {
            let places = tensors[0].places();
            let mut memory = vec![0.0; places.iter().max().map_or(0, |last| last + 1)];
            for (place, &value) in places.into_iter().zip(inputs[0]) {
                memory[place] = value;
            }
            output.places().into_iter().map(|place| memory[place]).collect()
        }
    }
}

/// Returns row-major strides; 0 for a dimension of size 1, which is broadcast.
fn repeated(dims: &[usize]) -> Vec<usize> {
    let mut strides: Vec<usize> = (0..dims.len()).map(|dim| dims[dim + 1..].iter().product()).collect();
    for (stride, _) in strides.iter_mut().zip(dims).filter(|(_, dim)| **dim == 1) {
        *stride = 0;
    }
    strides
}

/// Broadcasts dimensions of size 1.
fn spread(values: &[f32], from: &[usize], to: &[usize]) -> Elems {
    places(to, &repeated(from)).into_iter().map(|place| values[place]).collect()
}

fn pointwise(mode: Mode, inputs: &[Elems], wrong: bool) -> Elems {
    let one = |of: fn(f32) -> f32| inputs[0].iter().map(|&x| of(x)).collect();
    let two = |of: fn(f32, f32) -> f32| inputs[0].iter().zip(&inputs[1]).map(|(&x, &b)| of(x, b)).collect();
    match mode {
        Mode::Add => two(|x, b| x + b),
        Mode::Mul => two(|x, b| x * b),
        Mode::Div => two(|x, b| x / b),
        Mode::Sub => two(|x, b| x - b),
        Mode::CmpGe => two(|x, b| f32::from(u8::from(x >= b))),
        Mode::Exp => one(f32::exp),
        Mode::Log => one(f32::ln),
        Mode::Identity | Mode::GenIndex => one(|x| x),
        Mode::BinarySelect => {
            let pairs = inputs[0].iter().zip(&inputs[1]).zip(&inputs[2]);
            pairs.map(|((&x, &b), &condition)| if wrong || condition != 0.0 { x } else { b }).collect()
        }
    }
}

fn matmul((a_dims, a): (&[usize], &[f32]), (b_dims, b): (&[usize], &[f32]), c_dims: &[usize]) -> Elems {
    let (batch, of_one) = c_dims.split_at(c_dims.len() - 2);
    let (m, n, k) = (of_one[0], of_one[1], a_dims[a_dims.len() - 1]);
    let whole = |last: [usize; 2]| [batch, &last].concat();
    let (a, b) = (spread(a, a_dims, &whole([m, k])), spread(b, b_dims, &whole([k, n])));
    let mut out = Vec::with_capacity(c_dims.iter().product());
    for (a, b) in a.chunks_exact(m * k).zip(b.chunks_exact(k * n)) {
        for a in a.chunks_exact(k) {
            let mut row = vec![0.0; n];
            for (x, b) in a.iter().zip(b.chunks_exact(n)) {
                for (sum, y) in row.iter_mut().zip(b) {
                    *sum += x * y;
                }
            }
            out.extend(row);
        }
    }
    out
}
