//! Every shader is valid WGSL and within the limits of every WebGPU device. Needs no GPU.
#![cfg(feature = "wgpu")]

use std::{collections::BTreeSet, fs, path::Path};

use headroom_kernels::wgpu::shader::{Kernel, Weights};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// naga's error for a shader, if any.
fn faults(source: &str, capabilities: Capabilities) -> Option<String> {
    let module = match naga::front::wgsl::parse_str(source) {
        Ok(module) => module,
        Err(error) => return Some(error.emit_to_string(source)),
    };
    let bindings: BTreeSet<u32> =
        module.global_variables.iter().filter_map(|(_, variable)| Some(variable.binding?.binding)).collect();
    assert!(bindings.len() <= 8, "more storage buffers than a stage has: {bindings:?}");
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator.validate(&module).err().map(|error| error.emit_to_string(source))
}

fn capabilities(weights: Weights) -> Capabilities {
    // Unpacking f16 is part of every WebGPU, but a separate capability in naga.
    let packed = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    if weights == Weights::F16 { Capabilities::SHADER_FLOAT16 | packed } else { packed }
}

#[test]
fn every_kernel_is_valid_however_it_reads_weights() {
    for kernel in Kernel::ALL {
        for weights in Weights::ALL {
            let found = faults(&kernel.source(weights), capabilities(weights));
            assert!(found.is_none(), "{} {weights:?}: {}", kernel.name(), found.unwrap_or_default());
        }
    }
}

#[test]
fn a_fault_is_found() {
    let source = Kernel::Matvec.source(Weights::F32);
    assert!(faults(&source.replace("partial[lane] = sums", "partial[lane] = sums.x"), Capabilities::empty()).is_some());
    assert!(faults(&source.replacen("var sum0", "vra sum0", 1), Capabilities::empty()).is_some());
    assert!(faults(&Kernel::Matvec.source(Weights::F16), Capabilities::empty()).is_some(), "f16 requires a capability");
}

#[test]
fn every_file_is_a_kernel_or_a_part_of_one() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("wgsl");
    let names = |folder: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(folder).expect("a folder of shaders");
        let names = entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
        names.filter_map(|name| Some(name.strip_suffix(".wgsl")?.to_owned())).collect()
    };
    let kernels: BTreeSet<String> = Kernel::ALL.iter().map(|kernel| kernel.name().to_owned()).collect();
    assert_eq!(names(&folder), kernels);
    let parts = names(&folder.join("parts"));
    assert!(parts.len() >= 5, "{parts:?}");
    let sources: Vec<String> =
        Kernel::ALL.iter().flat_map(|kernel| Weights::ALL.map(|weights| kernel.source(weights))).collect();
    for part in parts {
        let text = fs::read_to_string(folder.join("parts").join(format!("{part}.wgsl"))).expect("readable");
        assert!(sources.iter().any(|source| source.contains(&text)), "nothing uses {part}");
    }
}

/// Every kernel's source names its reference, and that file exists.
#[test]
fn every_kernel_names_its_twin() {
    for kernel in Kernel::ALL {
        let source = kernel.source(Weights::F32);
        let twin = source.split("Twin: ").nth(1).and_then(|rest| rest.split([';', ' ', '\n']).next());
        let twin = twin.expect("a twin is named").trim_end_matches('.');
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(twin);
        assert!(path.is_file(), "{}: {}", kernel.name(), path.display());
    }
}
