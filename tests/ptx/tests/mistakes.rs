//! Small kernels with each mistake that the interpreter is to find, beside the same without it.

use headroom_ptx::{Allocation, Fault, Launch, Memory, MistakeKind, Module};

/// Where the kernels' buffer begins, and its words.
const BUFFER: u64 = 0x1000;
const WORDS: usize = 64;

/// Two warps; `%rd1` is the buffer, `%r1` the thread, `%rd2` the buffer's word of it, and `%r2` its word in shared memory.
const HEAD: &str = "\
.version 8.4
.target sm_80
.address_size 64
.extern .shared .align 128 .b8 shared_bytes[];
.visible .entry k(
	.param .u64 k_param_0,
	.param .u32 k_param_1
)
.maxntid 64, 1, 1
{
	.reg .pred %p<4>;
	.reg .f32 %f<16>;
	.reg .b32 %r<16>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [k_param_0];
	ld.param.u32 %r15, [k_param_1];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd2, %rd1, %rd3;
	shl.b32 %r2, %r1, 2;
	xor.b32 %r3, %r2, 128;
	xor.b32 %r4, %r2, 4;
";

/// Runs a body as a block of 64 threads, which has 256 bytes of shared memory. The buffer's words are their numbers.
fn run(body: &str) -> Result<Vec<u32>, Fault> {
    let module = Module::read(&format!("{HEAD}{body}\n\tret;\n}}\n")).expect("it is PTX");
    let mut bytes: Vec<u8> = (0_u32..).take(WORDS).flat_map(u32::to_ne_bytes).collect();
    let mut memory = Memory::default();
    memory.allocate(BUFFER, bytes.len() as u64);
    memory.written(BUFFER, bytes.len() as u64 / 2);
    let launch = Launch { grid: [1, 1, 1], block: [64, 1, 1], shared_bytes: 256, seed: 1 };
    let parameters: Vec<u8> = BUFFER.to_ne_bytes().into_iter().chain(7_u32.to_ne_bytes()).collect();
    let allocations = vec![Allocation { address: BUFFER, bytes: &mut bytes }];
    let ran = module.launch("k", launch, &parameters, &mut memory, allocations).expect("there is such an entry");
    ran.map_err(|fault| *fault)?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect())
}

#[track_caller]
fn runs(body: &str) -> Vec<u32> {
    run(body).unwrap_or_else(|fault| panic!("{fault}"))
}

#[track_caller]
fn fails(body: &str, message: &str) {
    let fault = run(body).expect_err("it has a mistake");
    assert!(fault.to_string().contains(message), "{fault}");
    assert_eq!((&*fault.entry, fault.block), ("k", [0; 3]));
    let text = format!("{HEAD}{body}\n\tret;");
    let line = text.lines().nth(fault.line as usize - 1).unwrap_or_default();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>().join(" "), fault.instruction);
}

#[test]
fn a_kernel_without_mistakes_runs() {
    let out = runs("mad.lo.s32 %r5, %r1, 3, %r15;\nst.global.u32 [%rd2], %r5;");
    assert_eq!(out, (0..64).map(|thread| thread * 3 + 7).collect::<Vec<u32>>());
}

#[test]
fn values_pass_between_warps_by_a_barrier_alone() {
    let body = |barrier: &str| {
        format!("st.shared.u32 [%r2], %r1;\n{barrier}\nld.shared.u32 %r5, [%r3];\nst.global.u32 [%rd2], %r5;")
    };
    assert_eq!(runs(&body("bar.sync 0;"))[..2], [32, 33]);
    // Of a warp that has not stored yet nothing is there, of one that has it is a race.
    let fault = run(&body("")).expect_err("there is no barrier");
    assert!(matches!(fault.mistake, MistakeKind::Race { .. } | MistakeKind::Unwritten { .. }), "{fault}");
    fails("st.shared.u32 [%r2], %r1;\nbar.sync 0;\nld.shared.u32 %r5, [%r3];\nst.shared.u32 [%r2], %r5;", "race: ");
}

#[test]
fn values_pass_within_a_warp_by_its_barrier() {
    let body = |barrier: &str| {
        format!("st.shared.u32 [%r2], %r1;\n{barrier}\nld.shared.u32 %r5, [%r4];\nst.global.u32 [%rd2], %r5;")
    };
    assert_eq!(runs(&body("bar.warp.sync -1;"))[..2], [1, 0]);
    fails(&body(""), "race: load of shared memory at byte 4, which thread 1 accesses");
}

#[test]
fn accesses_out_of_bounds_or_misaligned_are_found() {
    fails("st.shared.u32 [%r2+4], %r1;", "thread 63: store of 4 bytes at byte 256 of 256 bytes of shared memory");
    fails("st.global.u32 [%rd2+4], %r1;", "thread 63: store of 4 bytes at byte 256 of an allocation of 256 bytes");
    fails("st.shared.v2.f32 [%r2], {%f1, %f2};", "thread 1: store of 8 bytes at 0x4, which is misaligned");
    fails("ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd2];", "which is misaligned");
    fails("ld.global.u32 %r5, [%rd3];", "before every allocation");
}

#[test]
fn memory_and_registers_that_nothing_wrote_are_found() {
    fails("ld.global.u32 %r5, [%rd2];", "load of global memory at byte 128, which nothing has written");
    fails("ld.shared.u32 %r5, [%r2];", "load of shared memory at byte 0, which nothing has written");
    fails("st.global.u32 [%rd2], %r9;", "undefined value stored to global memory");
    fails("ld.shared.u32 %r5, [%r9];", "undefined address");
    fails("@%p1 st.global.u32 [%rd2], %r1;", "undefined predicate");
    // One side decides alone.
    runs("setp.lt.u32 %p1, %r1, 0;\nand.pred %p2, %p1, %p3;\n@%p2 st.global.u32 [%rd2], %r9;");
}

#[test]
fn two_threads_at_one_word_of_global_memory_are_found() {
    fails("st.global.u32 [%rd1], %r1;", "race: store of global memory at byte 0");
    fails(
        "and.b32 %r5, %r4, 63;\ncvt.u64.u32 %rd4, %r5;\nadd.s64 %rd5, %rd1, %rd4;\nld.global.u32 %r6, [%rd5];\n\
         st.global.u32 [%rd2], %r6;",
        "race: ",
    );
}

#[test]
fn lanes_that_are_elsewhere_are_found() {
    let diverged = |then: &str| format!("setp.lt.u32 %p1, %r1, 5;\n@%p1 bra $L;\n{then}\n$L:");
    fails(&diverged("bar.sync 0;"), "executed by lanes 0xffffffe0 of the warp instead of all");
    fails(&diverged("bar.warp.sync -1;"), "executed by lanes 0xffffffe0");
    fails(&diverged("shfl.sync.bfly.b32 %r5|%p2, %r1, 1, 31, -1;"), "executed by lanes 0xffffffe0");
    let out = runs("shfl.sync.bfly.b32 %r5|%p2, %r1, 1, 31, -1;\nst.global.u32 [%rd2], %r5;");
    assert_eq!(out[..4], [1, 0, 3, 2]);
    fails("setp.gt.u32 %p1, %r1, 31;\n@%p1 ret;\nbar.sync 0;", "barrier after 1 warps of the block have exited");
    fails(
        "setp.gt.u32 %p1, %r1, 31;\n@%p1 bra $L;\nbar.sync 0;\nret;\n$L:\nbar.sync 0;",
        "another warp of its block at the barrier in line",
    );
}

#[test]
fn copies_are_there_once_they_were_waited_for() {
    let body = |wait: &str, reads: &str| {
        format!(
            "setp.gt.u32 %p1, %r1, 7;\n@%p1 bra $L;\nshl.b32 %r5, %r1, 4;\ncvt.u64.u32 %rd4, %r5;\n\
             add.s64 %rd5, %rd1, %rd4;\ncp.async.cg.shared.global [%r5], [%rd5], 16, 16;\ncp.async.commit_group;\n\
             {wait}\n{reads}\n$L:"
        )
    };
    let out = runs(&body("cp.async.wait_group 0;", "ld.shared.u32 %r6, [%r5+8];\nst.global.u32 [%rd2+128], %r6;"));
    assert_eq!(out[32..40], [2, 6, 10, 14, 18, 22, 26, 30]);
    fails(&body("", "ld.shared.u32 %r6, [%r5];"), "before the copy to it was waited for");
    fails(&body("cp.async.wait_group 1;", "ld.shared.u32 %r6, [%r5];"), "before the copy to it was waited for");
    fails(&body("", "st.shared.u32 [%r5], %r1;"), "store of shared memory at byte 0 before the copy");
    fails(&body("", ""), "exits before it has waited");
    fails(
        &body("cp.async.wait_group 0;", "xor.b32 %r7, %r5, 16;\nld.shared.u32 %r6, [%r7];"),
        "race: load of shared memory",
    );
}

#[test]
fn a_copy_of_no_bytes_writes_zeros() {
    let out = runs(
        "setp.ne.s32 %p1, %r1, 0;\n@%p1 bra $L;\ncp.async.cg.shared.global [%r2], [%rd1], 16, 0;\n\
         cp.async.commit_group;\ncp.async.wait_group 0;\nld.shared.u32 %r6, [%r2+4];\nst.global.u32 [%rd2+4], %r6;\n$L:",
    );
    assert_eq!(out[..3], [0, 0, 2]);
}

#[test]
fn endless_blocks_and_divisions_by_zero_are_found() {
    fails("$L:\nbra $L;", "executes more than");
    fails("div.u32 %r5, %r15, %r1;", "thread 0: division by zero");
}

#[test]
fn unknown_instruction_is_an_error() {
    for (body, message) in [
        ("ex2.approx.f32 %f1, %f2;", "line 23 of the PTX: `ex2.approx.f32` is not known"),
        ("add.s32 %r1, %r2;", "`add.s32` has 2 operands instead of 3"),
        ("add.s32 %r1, %r2, %rd1;", "%rd1 is a register of type Long, not Word"),
        ("add.s32 %r1, %r2, %r99;", "%r99 is not declared"),
        ("bra $NOWHERE;", "there is no label $NOWHERE"),
        ("ld.param.u64 %rd1, [k_param_1];", "k_param_1 has 4 bytes"),
        ("st.volatile.global.u32 [%rd1], %r1;", "is not known"),
        ("setp.ltu.u32 %p1, %r1, %r2;", "is not known"),
    ] {
        let error = Module::read(&format!("{HEAD}{body}\n\tret;\n}}\n")).expect_err("it is not known");
        assert!(error.to_string().contains(message), "{body}: {error}");
    }
}
