//! Execution plans: a graph is passed to the library, an engine is selected from its proposals, and executed.

use super::{
    calls::{Descriptor, DescriptorGpu, Handle, Kind, Name, TensorLocation, Word},
    graph::{DataType, Graph, Node, Role, Tensor},
};
use crate::cuda::{CudaError, Device, Slice};

/// CUDNN_HEUR_MODE_A: engines ranked by the library's heuristics.
const HEURISTICS: i32 = 3;
/// Alignment in bytes of every tensor and every row.
const ALIGNMENT: i64 = 16;

/// An execution plan and its workspace size.
#[derive(Debug)]
pub struct Plan {
    plan: Descriptor,
    /// Tensors outside of the graph, by their identifiers in the library.
    outside: Vec<(i64, Role)>,
    /// Required workspace in bytes.
    pub workspace_bytes: u64,
}

impl Plan {
    /// Plans the first proposed engine that works and fits into the workspace; `None` if no engine does.
    ///
    /// # Errors
    /// The library rejects the graph itself.
    #[track_caller]
    pub fn new(whom: DescriptorGpu<'_>, graph: &Graph, room_bytes: u64) -> Result<Option<Self>, CudaError> {
        let tensors = graph.tensors.iter().zip(1..).map(|(of, id)| tensor(whom, of, id));
        let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
        let nodes = graph.nodes.iter().map(|of| operation(whom, of, &tensors)).collect::<Result<Vec<_>, _>>()?;
        let mut operations = Descriptor::of(whom, Kind::OperationGraph)?;
        operations.set_gpu(Name::GraphHandle, whom)?;
        operations.set_descriptors(Name::GraphOperations, &nodes)?;
        operations.finalize()?;

        let mut heuristics = Descriptor::of(whom, Kind::EngineHeuristics)?;
        heuristics.set_descriptors(Name::HeuristicsGraph, [&operations])?;
        heuristics.set_word(Name::HeuristicsMode, Word::HeuristicsMode(HEURISTICS))?;
        if let DescriptorGpu::Elsewhere(properties) = whom {
            heuristics.set_descriptors(Name::HeuristicsDeviceProperties, [properties])?;
        }
        heuristics.finalize()?;
        let outside = graph.tensors.iter().zip(1..).filter_map(|(of, id)| Some((id, of.role?)));
        let outside: Vec<_> = outside.collect();
        for engine in heuristics.engines()? {
            // A proposed engine may turn out to be unsupported when its plan is finalized.
            let Ok((plan, workspace_bytes)) = planned(whom, &engine) else { continue };
            if workspace_bytes <= room_bytes {
                return Ok(Some(Self { plan, outside, workspace_bytes }));
            }
        }
        Ok(None)
    }

    /// Executes the plan after all previously launched work.
    ///
    /// # Errors
    /// The library or the GPU fails.
    #[track_caller]
    pub fn execute(
        &self,
        handle: &Handle,
        device: &Device,
        address: impl Fn(Role) -> u64,
        workspace: Slice<u8>,
    ) -> Result<(), CudaError> {
        let mut pack = Descriptor::of(DescriptorGpu::Here(handle), Kind::VariantPack)?;
        let (ids, places): (Vec<i64>, Vec<TensorLocation>) = self
            .outside
            .iter()
            .map(|(id, role)| match role {
                Role::Number(value) => (*id, TensorLocation::Here(value)),
                role => (*id, TensorLocation::OnGpu(address(*role))),
            })
            .unzip();
        pack.set_places(Name::PackPointers, &places)?;
        pack.set_i64s(Name::PackIds, &ids)?;
        pack.set_places(Name::PackWorkspace, &[TensorLocation::OnGpu(workspace.address())])?;
        pack.finalize()?;
        handle.execute(device, &self.plan, &pack)
    }
}

#[track_caller]
fn planned(whom: DescriptorGpu<'_>, engine: &Descriptor) -> Result<(Descriptor, u64), CudaError> {
    let mut plan = Descriptor::of(whom, Kind::ExecutionPlan)?;
    plan.set_gpu(Name::PlanHandle, whom)?;
    plan.set_descriptors(Name::PlanEngineConfig, [engine])?;
    plan.finalize()?;
    let workspace_bytes = u64::try_from(plan.i64(Name::PlanWorkspaceSize)?).unwrap_or(u64::MAX);
    Ok((plan, workspace_bytes))
}

#[track_caller]
fn tensor(whom: DescriptorGpu<'_>, of: &Tensor, id: i64) -> Result<Descriptor, CudaError> {
    let mut tensor = Descriptor::of(whom, Kind::Tensor)?;
    tensor.set_word(Name::TensorDataType, Word::DataType(of.of as i32))?;
    tensor.set_i64s(Name::TensorDimensions, &of.dims)?;
    tensor.set_i64s(Name::TensorStrides, &of.strides)?;
    tensor.set_i64s(Name::TensorId, &[id])?;
    tensor.set_i64s(Name::TensorAlignment, &[ALIGNMENT])?;
    tensor.set_bool(Name::TensorIsByValue, matches!(of.role, Some(Role::Number(_))))?;
    tensor.set_bool(Name::TensorIsVirtual, of.role.is_none())?;
    tensor.finalize()?;
    Ok(tensor)
}

#[track_caller]
fn operation(whom: DescriptorGpu<'_>, node: &Node, tensors: &[Descriptor]) -> Result<Descriptor, CudaError> {
    let float = Word::DataType(DataType::F32 as i32);
    let made = |how: Option<(Name, Descriptor)>, kind, of: &[(Name, usize)]| {
        let mut operation = Descriptor::of(whom, kind)?;
        if let Some((name, how)) = &how {
            operation.set_descriptors(*name, [how])?;
        }
        for (name, id) in of {
            operation.set_descriptors(*name, tensors.get(*id))?;
        }
        operation.finalize()?;
        Ok(operation)
    };
    match *node {
        Node::Matmul { a, b, c } => {
            let mut how = Descriptor::of(whom, Kind::Matmul)?;
            how.set_word(Name::MatmulComputeType, float)?;
            how.finalize()?;
            let of = [(Name::OperationMatmulA, a), (Name::OperationMatmulB, b), (Name::OperationMatmulC, c)];
            made(Some((Name::OperationMatmulDescriptor, how)), Kind::OperationMatmul, &of)
        }
        Node::Pointwise { mode, x, b, t, y, axis, math } => {
            let mut how = Descriptor::of(whom, Kind::Pointwise)?;
            how.set_word(Name::PointwiseMode, Word::PointwiseMode(mode as i32))?;
            how.set_word(Name::PointwiseMathPrecision, Word::DataType(math as i32))?;
            if let Some(axis) = axis {
                how.set_i64s(Name::PointwiseAxis, &[axis])?;
            }
            how.finalize()?;
            let mut of = vec![(Name::OperationPointwiseX, x)];
            of.extend(b.map(|b| (Name::OperationPointwiseB, b)));
            of.extend(t.map(|t| (Name::OperationPointwiseT, t)));
            of.push((Name::OperationPointwiseY, y));
            made(Some((Name::OperationPointwiseDescriptor, how)), Kind::OperationPointwise, &of)
        }
        Node::Reduction { op, x, y } => {
            let mut how = Descriptor::of(whom, Kind::Reduction)?;
            how.set_word(Name::ReductionComputeType, float)?;
            how.set_word(Name::ReductionOperator, Word::ReductionOperator(op as i32))?;
            how.finalize()?;
            let of = [(Name::OperationReductionX, x), (Name::OperationReductionY, y)];
            made(Some((Name::OperationReductionDescriptor, how)), Kind::OperationReduction, &of)
        }
        Node::Reshape { x, y } => {
            made(None, Kind::OperationReshape, &[(Name::OperationReshapeX, x), (Name::OperationReshapeY, y)])
        }
    }
}
