//! Memory: its size, and the errors when it is too small.

use std::{env, path::PathBuf};

use headroom_fake_cuda::{FakeGpu, Scenario};
use headroom_kernels::cuda::{Arena, Bf16, Device, Slice};
use headroom_planner::gpt::{
    GptConfig, GptShape,
    buffers::{Buffers, cpu_training, cuda::plan},
    presets::Preset,
    tensors::{Role, Tensor, TensorId},
};
use insta::assert_snapshot;

use crate::child::Child;

const GIB: u64 = 1 << 30;

fn scenario() -> Scenario {
    let gpu = FakeGpu { total_bytes: 12 << 30, context_bytes: 300 << 20, others_bytes: 2 << 30, ..FakeGpu::default() };
    Scenario { gpus: vec![gpu], ..Scenario::default() }
}

#[test]
fn free_memory_excludes_context_others_and_own_allocations() {
    let said = Child::on("memory::free_memory_excludes_context_others_and_own_allocations", &scenario()).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        let free = || device.memory().expect("it says").free_bytes;
        let before = free();
        tell(format!("{} MiB", before >> 20));
        let taken = device.allocate::<f32>(1 << 28).expect("it is free");
        tell(format!("{} bytes less", before - free()));
        drop(taken);
        tell(format!("{} bytes less", before - free()));
    });
    assert_snapshot!(said.output, @r#"
    9940 MiB
    1073741824 bytes less
    0 bytes less
    "#);
}

#[test]
fn too_much_is_refused_with_what_is_free() {
    let said = Child::on("memory::too_much_is_refused_with_what_is_free", &scenario()).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        tell(device.allocate::<u64>(5 << 28).expect_err("10 GiB of 9.7").to_string());
        tell(device.allocate::<u64>(1 << 62).expect_err("beyond u64").to_string());
        tell(format!("{} MiB are free still", device.memory().expect("it says").free_bytes >> 20));
    });
    assert_snapshot!(said.output, @r#"
    10.00 GiB of GPU memory are needed, but only 9.71 GiB are free
    an allocation's number of elements is 4611686018427387904, which is beyond what a GPU can count
    9940 MiB are free still
    "#);
}

#[test]
fn memory_that_another_process_took_meanwhile_is_the_same_error() {
    let test = "memory::memory_that_another_process_took_meanwhile_is_the_same_error";
    let said = Child::on(test, &Scenario { no_memory_at: Some(2), ..scenario() }).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        let first = device.allocate::<u8>(1 << 20).expect("the first");
        tell(device.allocate::<u8>(1 << 30).expect_err("the second").to_string());
        tell(format!("{:?}", device.allocate::<u8>(1 << 30).map(|third| third.slice().bytes())));
        drop(first);
    });
    assert_snapshot!(said.output, @r#"
    1.00 GiB of GPU memory are needed, but only 9.71 GiB are free
    Ok(1073741824)
    "#);
}

#[test]
fn memory_taken_between_plan_and_allocation_is_reported() {
    let test = "memory::memory_taken_between_plan_and_allocation_is_reported";
    let said = Child::on(test, &scenario()).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        let planned = device.memory().expect("it says").free_bytes;
        let file = PathBuf::from(env::var_os(headroom_fake_cuda::VARIABLE).expect("it is set"));
        let mut later = scenario();
        later.gpus[0].others_bytes = 11 * GIB;
        later.play(file.parent().expect("a folder")).expect("it is written");
        tell(device.allocate::<u8>(planned).expect_err("another process allocated first").to_string());
        later.gpus[0].others_bytes = 2 * GIB;
        later.play(file.parent().expect("a folder")).expect("it is written");
        tell(format!("{:?}", device.allocate::<u8>(planned).map(|all| all.slice().bytes() == planned)));
    });
    assert_snapshot!(said.output, @r#"
    9.71 GiB of GPU memory are needed, but only 724 MiB are free
    Ok(true)
    "#);
}

#[test]
fn a_gpu_that_others_fill_has_no_room_for_a_context() {
    let mut scenario = scenario();
    scenario.gpus[0].others_bytes = 12 * GIB - (100 << 20);
    let said = Child::on("memory::a_gpu_that_others_fill_has_no_room_for_a_context", &scenario).run(|tell| {
        tell(Device::open(0).expect_err("no room").to_string());
    });
    assert_snapshot!(said.output, @"NVIDIA GeForce RTX 4070 has no memory for another process: other processes hold nearly all of its 12.00 GiB (nvidia-smi lists them)");
}

#[test]
fn lengths_are_compared_before_anything_is_copied() {
    let said = Child::on("memory::lengths_are_compared_before_anything_is_copied", &scenario()).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        let four = device.upload(&[1_u32, 2, 3, 4]).expect("it is free");
        let two = four.slice().part(1, 2).expect("they are there");
        tell(format!("{:?}", device.download(two)));
        tell(device.write(two, &[7; 3]).expect_err("three into two").to_string());
        tell(device.copy(four.slice(), two).expect_err("two into four").to_string());
        device.zero(two).expect("it can");
        tell(format!("{:?}", device.download(four.slice())));
        tell(format!("{:?}", device.download(four.slice().part(4, 0).expect("nothing"))));
    });
    assert_snapshot!(said.output, @r#"
    Ok([2, 3])
    write: u32 has 2 elements instead of 3
    copy: u32 has 4 elements instead of 2
    Ok([1, 0, 0, 4])
    Ok([])
    "#);
}

/// Returns the buffers for training a small model on the CPU, a list with many entries.
fn list() -> Buffers {
    let shape = GptShape { n_layer: 2, n_head: 2, n_embd: 34, block_size: 7, vocab_size: 65, dropout: 0.0, bias: true };
    cpu_training(&GptConfig::new(shape).expect("valid"), 3, 1).expect("small")
}

#[test]
fn an_arena_takes_what_its_list_says_to_the_byte() {
    let said = Child::on("memory::an_arena_takes_what_its_list_says_to_the_byte", &scenario()).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        let (list, free_before) = (list(), device.memory().expect("it says").free_bytes);
        let planned: u64 = list.all().iter().map(|buffer| buffer.bytes.next_multiple_of(512)).sum();
        let mut arena = Arena::in_a_row(&device, &list).expect("it is free");
        assert_eq!(arena.bytes(), planned);
        assert_eq!(free_before - device.memory().expect("it says").free_bytes, planned);
        device.zero(arena.whole()).expect("it can");
        let mut slices = Vec::new();
        for (i, buffer) in (1_u32..).zip(list.all()) {
            let is_wide = buffer.bytes == 4 * buffer.elements;
            assert!(is_wide, "{}", buffer.name());
            let slice = arena.take::<f32>(buffer.stored, buffer.layer).expect("the list's next");
            assert_eq!(slice.address() % 512, 0);
            device.write(slice, &vec![i as f32; usize::try_from(slice.len()).expect("small")]).expect("its place");
            slices.push((i as f32, slice));
        }
        assert!(arena.is_all_taken());
        // No buffer overlaps another.
        for (value, slice) in slices {
            assert!(device.download(slice).expect("its place").iter().all(|&found| found == value));
        }
        drop(arena);
        assert_eq!(device.memory().expect("it says").free_bytes, free_before);
        tell("so it is");
    });
    assert_snapshot!(said.output, @"so it is");
}

#[test]
fn an_arena_that_does_not_fit_leaves_nothing_behind() {
    let test = "memory::an_arena_that_does_not_fit_leaves_nothing_behind";
    let gpu = FakeGpu { total_bytes: 1 << 19, context_bytes: 0, ..FakeGpu::default() };
    let said = Child::on(test, &Scenario { gpus: vec![gpu], ..Scenario::default() }).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        tell(Arena::in_a_row(&device, &list()).expect_err("it is larger").to_string());
        tell(format!("{} bytes are free", device.memory().expect("it says").free_bytes));
    });
    assert_snapshot!(said.output, @r#"
    660 KiB of GPU memory are needed, but only 512 KiB are free
    524288 bytes are free
    "#);
}

#[test]
fn an_arena_gives_what_was_planned_and_nothing_else() {
    let said = Child::on("memory::an_arena_gives_what_was_planned_and_nothing_else", &scenario()).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        let list = list();
        let mut arena = Arena::in_a_row(&device, &list).expect("it is free");
        tell(arena.take::<f32>(Tensor::Wpe, None).expect_err("it is the second").to_string());
        tell(arena.take::<Bf16>(Tensor::Wte, None).expect_err("its type is f32").to_string());
        tell(arena.take_span::<f32>(1000).expect_err("there are fewer").to_string());
        let [wte, wpe] = [0, 1].map(|i| arena.places()[i].buffer.elements);
        let both = arena.take_span::<f32>(2).expect("the first two");
        assert_eq!(both.len(), wte.next_multiple_of(128) + wpe);
        let mut arena = Arena::in_a_row(&device, &list).expect("it is free");
        let wte = arena.take::<f32>(Tensor::Wte, None).expect("the first");
        assert_eq!(arena.find::<f32>(Tensor::Wte, None), Ok(wte));
        let half = TensorId { tensor: Tensor::Wte, role: Role::Half };
        tell(arena.find::<Bf16>(half, None).expect_err("it is not there").to_string());
    });
    assert_snapshot!(said.output, @r#"
    the arena is asked for transformer.wpe.weight of float, where its list has transformer.wte.weight of 2210 elements in 8840 bytes
    the arena is asked for transformer.wte.weight of bf16, where its list has transformer.wte.weight of 2210 elements in 8840 bytes
    the arena is asked for 1000 buffers in a row, where its list has 145 left, from transformer.wte.weight of 2210 elements in 8840 bytes on
    the arena is asked for transformer.wte.weight of bf16, where its list has nothing
    "#);
}

/// PyTorch needs 40.7 GiB for this run.
#[test]
fn gpt2_with_64_sequences_is_allocated_on_a_gpu_of_12_gb_as_planned() {
    let gpu = FakeGpu { total_bytes: 11 * GIB + 69 * GIB / 100, context_bytes: 300 << 20, ..FakeGpu::default() };
    let test = "memory::gpt2_with_64_sequences_is_allocated_on_a_gpu_of_12_gb_as_planned";
    let said = Child::on(test, &Scenario { gpus: vec![gpu], ..Scenario::default() }).run(|tell| {
        let device = Device::open(0).expect("a GPU");
        let free_bytes = device.memory().expect("it says").free_bytes;
        let shape = Preset::named("gpt2").expect("a preset").shape(1024, 0.0);
        let config = GptConfig::new(GptShape { bias: false, ..shape }).expect("valid");
        let plan = plan(&config, 64, free_bytes).expect("small").expect("it fits");
        let mut arena = Arena::planned(&device, &plan).expect("it is free");
        assert_eq!(free_bytes - device.memory().expect("it says").free_bytes, plan.bytes);
        for slot in &plan.slots {
            let (stored, layer) = (slot.buffer.stored, slot.buffer.layer);
            let bytes = match slot.buffer.bytes / slot.buffer.elements {
                2 => arena.take::<Bf16>(stored, layer).map(Slice::bytes),
                8 => arena.take::<u64>(stored, layer).map(Slice::bytes),
                _ => arena.take::<f32>(stored, layer).map(Slice::bytes),
            };
            assert_eq!(bytes, Ok(slot.buffer.bytes), "{}", slot.buffer.name());
        }
        assert!(arena.is_all_taken());
        tell("as planned");
    });
    assert_snapshot!(said.output, @"as planned");
}
