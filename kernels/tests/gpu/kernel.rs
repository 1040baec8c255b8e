//! Runs a single kernel.

use std::cell::RefCell;

use headroom_kernels::{
    reference::pack::{pack_f32, pack_half},
    wgpu::{
        Gpu,
        shader::{Kernel, Weights},
    },
};

thread_local! {
    static LAST: RefCell<Option<(String, wgpu::ComputePipeline)>> = const { RefCell::new(None) };
}

/// A kernel with its constants and buffers by binding.
#[derive(Debug)]
pub struct Run {
    pub kernel: Kernel,
    pub weights: Weights,
    pub constants: Vec<(&'static str, f64)>,
    pub buffers: Vec<(u32, Vec<u32>)>,
    /// Settings at binding 4: first, n, head, key, top_k, n_top, bits of the temperature.
    pub pass: Option<[u32; 8]>,
    pub groups: (u32, u32),
}

/// Bits of float32 numbers.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Float32 numbers from their bits.
pub fn numbers(bits: &[u32]) -> Vec<f32> {
    bits.iter().map(|&bits| f32::from_bits(bits)).collect()
}

/// A matrix in the layout that the kernels read.
pub fn matrix(values: &[f32], c: usize, weights: Weights) -> Vec<u32> {
    if weights == Weights::F32 {
        let mut out = vec![0.0; values.len()];
        pack_f32(&mut out, c, |row, column| values[row * c + column]);
        return bits(&out);
    }
    let mut out = vec![0; values.len() / 2];
    pack_half(&mut out, c, |row, column| values[row * c + column]);
    out
}

/// The values of a matrix after rounding to its storage format.
pub fn stored(values: &[f32], weights: Weights) -> Vec<f32> {
    use headroom_kernels::reference::pack::{half_bits, half_value};
    let round = |&value: &f32| if weights == Weights::F32 { value } else { half_value(half_bits(value)) };
    values.iter().map(round).collect()
}

impl Run {
    /// The compiled kernel, reused from the last run if equal: compilation takes longer than the run.
    fn pipeline(&self, device: &wgpu::Device) -> wgpu::ComputePipeline {
        let key = format!("{:?} {:?} {:?}", self.kernel, self.weights, self.constants);
        LAST.with_borrow_mut(|last| match last {
            Some((known, pipeline)) if *known == key => pipeline.clone(),
            _ => last.insert((key, self.compiled(device))).1.clone(),
        })
    }

    fn compiled(&self, device: &wgpu::Device) -> wgpu::ComputePipeline {
        let source = self.kernel.source(self.weights);
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(self.kernel.name()),
            source: wgpu::ShaderSource::Wgsl(source.into()),
        });
        device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(self.kernel.name()),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &self.constants,
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        })
    }

    /// Runs the kernel and reads the buffers of some bindings.
    pub fn read(&self, gpu: &Gpu, bindings: &[u32]) -> Vec<Vec<u32>> {
        let (device, queue) = (gpu.device(), gpu.queue());
        let pipeline = self.pipeline(device);
        let make = |words: &[u32], usage| {
            let size = 4 * words.len() as u64;
            let usage = usage | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
            let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
            let buffer = device.create_buffer(&descriptor);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            queue.write_buffer(&buffer, 0, &bytes);
            buffer
        };
        let mut buffers: Vec<_> =
            self.buffers.iter().map(|(binding, words)| (*binding, make(words, wgpu::BufferUsages::STORAGE))).collect();
        if let Some(pass) = &self.pass {
            buffers.push((4, make(pass, wgpu::BufferUsages::UNIFORM)));
        }
        let entries: Vec<_> = buffers
            .iter()
            .map(|(binding, buffer)| wgpu::BindGroupEntry { binding: *binding, resource: buffer.as_entire_binding() })
            .collect();
        let layout = pipeline.get_bind_group_layout(0);
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
        let bind_group = device.create_bind_group(&descriptor);
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut compute = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        compute.set_pipeline(&pipeline);
        compute.set_bind_group(0, &bind_group, &[]);
        compute.dispatch_workgroups(self.groups.0, self.groups.1, 1);
        drop(compute);
        queue.submit([encoder.finish()]);
        let find = |binding: &u32| &buffers.iter().find(|(found, _)| found == binding).expect("a binding").1;
        bindings.iter().map(|binding| read_back(gpu, find(binding))).collect()
    }

    /// Runs the kernel and reads the float32 numbers of one binding.
    pub fn numbers(&self, gpu: &Gpu, binding: u32) -> Vec<f32> {
        numbers(&self.read(gpu, &[binding])[0])
    }
}

fn read_back(gpu: &Gpu, buffer: &wgpu::Buffer) -> Vec<u32> {
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor { label: None, size: buffer.size(), usage, mapped_at_creation: false };
    let copy = gpu.device().create_buffer(&descriptor);
    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &copy, 0, buffer.size());
    gpu.queue().submit([encoder.finish()]);
    copy.slice(..).map_async(wgpu::MapMode::Read, |mapped| mapped.expect("it can be mapped"));
    gpu.device().poll(wgpu::PollType::wait_indefinitely()).expect("the device still works");
    let view = copy.slice(..).get_mapped_range().expect("mapped");
    view.to_vec().chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
