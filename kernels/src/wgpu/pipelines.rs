//! Cache of compiled pipelines, by kernel, weight format and constants.

use std::collections::HashMap;

use super::{
    Gpu, GpuError,
    shader::{Kernel, Weights},
};

/// Pipeline-overridable constants, by the shader's names.
pub(super) type Constants = Vec<(&'static str, f64)>;

/// Shader modules and pipelines of an engine.
#[derive(Debug, Default)]
pub(super) struct Pipelines {
    modules: HashMap<(Kernel, Weights), wgpu::ShaderModule>,
    made: Vec<(Kernel, Weights, Constants, wgpu::ComputePipeline)>,
}

impl Pipelines {
    /// Returns the pipeline of a kernel with these constants, compiled on first use.
    pub(super) fn get(
        &mut self,
        gpu: &Gpu,
        kernel: Kernel,
        weights: Weights,
        constants: &Constants,
    ) -> wgpu::ComputePipeline {
        let weights = if kernel.reads_weights() { weights } else { Weights::F32 };
        let same = |made: &&(Kernel, Weights, Constants, wgpu::ComputePipeline)| {
            made.0 == kernel && made.1 == weights && made.2 == *constants
        };
        if let Some(made) = self.made.iter().find(same) {
            return made.3.clone();
        }
        let module = self.modules.entry((kernel, weights)).or_insert_with(|| {
            gpu.device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(kernel.name()),
                source: wgpu::ShaderSource::Wgsl(kernel.source(weights).into()),
            })
        });
        let pipeline = gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(kernel.name()),
            layout: None,
            module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants,
                // All workgroup memory is written before it is read. Browsers clear it anyway.
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        });
        self.made.push((kernel, weights, constants.clone(), pipeline.clone()));
        pipeline
    }
}

/// A kernel with its bindings and number of workgroups.
#[derive(Debug)]
pub(super) struct Dispatch {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    x: Extent,
    y: Extent,
}

/// Number of workgroups along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// A constant number.
    Fixed(u32),
    /// One workgroup per this many tokens of the pass.
    Tokens(u32),
}

impl Extent {
    fn of(self, n: u32) -> u32 {
        match self {
            Self::Fixed(count) => count,
            Self::Tokens(each) => n.div_ceil(each),
        }
    }
}

impl Dispatch {
    pub(super) fn new(
        gpu: &Gpu,
        pipeline: wgpu::ComputePipeline,
        buffers: &[(u32, &wgpu::Buffer)],
        (x, y): (Extent, Extent),
    ) -> Self {
        let entries: Vec<_> = buffers
            .iter()
            .map(|(binding, buffer)| wgpu::BindGroupEntry { binding: *binding, resource: buffer.as_entire_binding() })
            .collect();
        let bind_group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Self { pipeline, bind_group, x, y }
    }

    /// Records the dispatch into a pass over `n` tokens.
    pub(super) fn encode(&self, pass: &mut wgpu::ComputePass<'_>, n: u32) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bind_group, &[]);
        pass.dispatch_workgroups(self.x.of(n), self.y.of(n), 1);
    }
}

/// Creates pipelines with `make`, and returns the device's validation error if there is one.
pub(super) async fn checked<T>(gpu: &Gpu, make: impl FnOnce() -> T) -> Result<T, GpuError> {
    let scope = gpu.device.push_error_scope(wgpu::ErrorFilter::Validation);
    let made = make();
    let error = scope.pop().await;
    gpu.check()?;
    error.map_or(Ok(made), |error| Err(GpuError::Refused { reason: error.to_string() }))
}
