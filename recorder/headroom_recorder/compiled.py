"""`torch.compile` with Inductor's own code generation for a GPU that is not there.

Inductor lowers, fuses and plans buffers as on the GPU, and the wrapper code that it generates runs on fake tensors. Triton
kernels are not compiled, and do nothing. Kernels of PyTorch run as in an eager program.
"""

import importlib.util
import os
import re
import sys
import tempfile

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from . import source

# Settings of Inductor that this module does not record, and why.
REFUSED = {
    "triton.cudagraphs": "CUDA graphs keep memory in pools of their own",
    "max_autotune": "its kernels are selected by measurements on a GPU",
    "max_autotune_gemm": "its kernels are selected by measurements on a GPU",
    "max_autotune_pointwise": "its kernels are selected by measurements on a GPU",
    "benchmark_fusion": "its kernels are selected by measurements on a GPU",
    "cpp_wrapper": "the wrapper code is C++",
    "freezing": "weights are folded by their values",
}
BACKENDS = ("inductor", "eager", "aot_eager", "aot_eager_decomp_partition")
HINT = "compile without it, or pass --eager to record the run as if it were not compiled"
ASSIGNMENT = re.compile(r"\s*\(?(\w+)\b.* = ")
# The variable that holds the outermost module, as in `L['self'].transformer.h.0`.
VARIABLE = re.compile(r"^(?:[LG]\['\w+'\](?:\[\d+\])*|self(?=\.|$))")
UNBACKED = re.compile(r"^\s+u\d+ = ", re.MULTILINE)


class NoKernel:
    """A kernel that is neither compiled nor launched."""

    def __call__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class OnCpu(TorchDispatchMode):
    """Creates constants that Inductor evaluates while it compiles on the CPU instead of the GPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if kwargs.get("device") is not None:
            kwargs = kwargs | dict(device="cpu")
        args = ["cpu" if isinstance(x, torch.device) else x for x in args]
        return func(*args, **kwargs)


class Compiled:
    """What is known of the compiled parts of a program: `places` has the buffers of each generated file."""

    def __init__(self, recorder, on_forward):
        self.recorder = recorder
        # Called when a compiled forward starts.
        self.on_forward = on_forward
        self.places = {}
        self.lines = {}
        self.folder = None
        self.notes = set()

    def start(self, backend):
        """Replaces what would need a GPU in Inductor, at the program's first call of `torch.compile`."""
        if backend not in BACKENDS:
            name = backend if isinstance(backend, str) else "of the program's own"
            self.recorder.refuse(
                f"{source.line()} calls torch.compile with the backend {name}, whose code is not known", HINT
            )
        if self.folder is not None:
            return
        if not importlib.util.find_spec("triton"):
            self.recorder.refuse(
                f"{source.line()} calls torch.compile, whose code for GPUs needs the package triton",
                "install triton, which needs no GPU, or pass --eager to record the run as if it were not compiled",
            )
        self.folder = tempfile.TemporaryDirectory(prefix="headroom-inductor-")
        source.foreign.append(self.folder.name)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = self.folder.name
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        # Imports look up functions of `torch.cuda`, and some make constants.
        with _disable_current_modes():
            import torch._dynamo.convert_frame
            import torch._inductor.compile_fx
        self.patch_settings()
        self.patch_triton()
        self.patch_device()
        self.patch_wrapper()
        self.patch_graphs()
        self.patch_measurements()
        self.patch_optimizers()

    def close(self):
        if self.folder is not None:
            self.folder.cleanup()

    def patch_settings(self):
        import torch._functorch.config as functorch
        import torch._inductor.config as inductor

        inductor.force_disable_caches = True
        inductor.compile_threads = 1
        # No kernel for the CPU is compiled, so none depends on its instructions.
        inductor.cpp.simdlen = 1
        functorch.enable_autograd_cache = False
        # Recomputed random numbers: the other way needs a generator of the GPU. Neither has memory there.
        if hasattr(functorch, "graphsafe_rng_functionalization"):
            functorch.graphsafe_rng_functionalization = False

    def patch_triton(self):
        import torch._inductor.async_compile as async_compile
        import torch.utils._triton as triton

        def has_triton(*args, **kwargs):
            return True

        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("torch.") and hasattr(module, "has_triton"):
                module.has_triton = has_triton
        triton.triton_hash_with_backend = lambda: ""
        kinds = ("triton", "multi_kernel", "size_hint_multi_kernel", "cpp", "cpp_pybinding")
        for kind in kinds:
            if hasattr(async_compile.AsyncCompile, kind):
                setattr(async_compile.AsyncCompile, kind, lambda self, *args, **kwargs: NoKernel())

    def patch_device(self):
        import torch._dynamo.device_interface as interface

        cuda, gpu = torch.cuda, interface.CudaInterface
        properties = cuda.get_device_properties()
        gpu.get_device_properties = gpu.Worker.get_device_properties = staticmethod(lambda *args: properties)
        gpu.current_device = gpu.Worker.current_device = staticmethod(lambda: 0)
        gpu.device_count = staticmethod(lambda: 1)
        gpu.is_available = staticmethod(lambda: True)
        gpu.get_compute_capability = staticmethod(lambda *args: properties.major * 10 + properties.minor)
        gpu.get_raw_stream = staticmethod(lambda *args: 0)
        gpu.is_triton_capable = staticmethod(lambda *args: True)
        gpu.raise_if_triton_unavailable = staticmethod(lambda *args: None)
        gpu.synchronize = staticmethod(lambda *args: None)
        torch._C._cuda_getCurrentRawStream = lambda *args: 0

    def patch_wrapper(self):
        """Replaces what generated code calls, with the same allocations through PyTorch's dispatcher."""
        guards = torch._C._dynamo.guards

        def empty_cuda(size, stride, dtype):
            tensor = torch.empty_strided(size, stride, dtype=dtype, device="cuda")
            # `reinterpret_tensor` makes no views on a GPU; see `is_view` of the recorder.
            tensor.is_generated = True
            return tensor

        def empty_cpu(size, stride, dtype):
            # Kernels for the CPU do not run, so their results have no values.
            with self.recorder.pause():
                return torch.empty_strided(size, stride, dtype=dtype, device="cpu")

        def reinterpret(tensor, size, stride, offset=0):
            return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)

        guards._empty_strided_cuda = empty_cuda
        guards._empty_strided_cpu = guards._empty_strided_cpu_pinned = empty_cpu
        guards._reinterpret_tensor = reinterpret
        guards.assert_size_stride = guards.assert_alignment = lambda *args: None

    def patch_graphs(self):
        import torch._dynamo.convert_frame as convert_frame
        import torch._inductor.compile_fx as compile_fx
        import torch._inductor.graph as graph

        # Whether a tensor is aligned depends on its address.
        compile_fx.get_input_idxs_to_check = lambda *args: []
        to_module = graph.GraphLowering.compile_to_module

        def compile_to_module(lowering):
            self.refuse(lowering)
            module = to_module(lowering)
            self.remember(lowering, module)
            return module

        graph.GraphLowering.compile_to_module = compile_to_module

        def paused(run):
            def call(*args, **kwargs):
                with self.recorder.pause():
                    return run(*args, **kwargs)

            return call

        compile_graph = compile_fx.compile_fx

        def compile_in_one_mode(graph, inputs, *args, **kwargs):
            with _disable_current_modes():
                return compile_graph(graph, [in_mode_of_compilation(x) for x in inputs], *args, **kwargs)

        if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 11):
            compile_fx.compile_fx = compile_in_one_mode
        convert_frame._compile = paused(convert_frame._compile)
        # A backward may be compiled when it first runs.
        compile_fx.fx_codegen_and_compile = paused(compile_fx.fx_codegen_and_compile)

    def patch_measurements(self):
        import torch._inductor.fx_passes.joint_graph as joint_graph
        import torch._inductor.fx_passes.pad_mm as pad_mm

        def never_pad(key):
            self.notes.add(
                "torch.compile measures on the GPU whether it pads products of unaligned matrices; they are recorded "
                "without padding."
            )
            return False

        pad_mm.get_cached_should_pad = never_pad
        folder = joint_graph.UniformValueConstantFolder
        fold = folder.run

        def run(*args, **kwargs):
            with OnCpu():
                return fold(*args, **kwargs)

        folder.run = run

    def patch_optimizers(self):
        """Compilation of an optimizer's step creates the optimizer's state, which stays."""
        from torch._dynamo.variables.optimizer import OptimizerVariable as Variable

        recorder, call_method = self.recorder, Variable.call_method

        def recorded(run):
            def call(*args, **kwargs):
                with recorder.resume():
                    return run(*args, **kwargs)

            return call

        def call(variable, tx, name, args, kwargs):
            optimizer = variable.value
            if name != "_init_group" or not hasattr(optimizer, name):
                return call_method(variable, tx, name, args, kwargs)
            optimizer._init_group = recorded(optimizer._init_group)
            try:
                return call_method(variable, tx, name, args, kwargs)
            finally:
                del optimizer._init_group

        Variable.call_method = call
        Variable.move_step_if_cpu = recorded(Variable.move_step_if_cpu)

    def refuse(self, lowering):
        """Refuses settings under which the memory of a graph is not known."""
        import torch._inductor.config as config

        for name, cause in REFUSED.items():
            value = config
            for part in name.split("."):
                value = getattr(value, part, False)
            if value:
                self.recorder.refuse(
                    f"the code compiled at {source.line()} has Inductor's setting {name}: {cause}", HINT
                )

    def remember(self, lowering, module):
        """Keeps the places of a generated file's buffers."""
        path = module.__file__
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if UNBACKED.search(text):
            self.recorder.refuse(
                f"the shape of a tensor in the code compiled at {source.line()} depends on values, which tensors do not "
                "have without a GPU",
                "pass --eager to record the run as if it were not compiled",
            )
        self.places[path] = places(lowering)
        self.lines[path] = text.splitlines()
        call, is_forward = module.call, not (lowering.is_inference or lowering.is_backward)
        if is_forward:

            def call_forward(args):
                self.on_forward()
                return call(args)

            module.call = call_forward

    def place(self):
        """The place of the buffer that generated code allocates now, or `None` outside of such code."""
        frame = self.frame()
        if not frame:
            return None
        path = frame.f_code.co_filename
        assigned = ASSIGNMENT.match(self.lines[path][frame.f_lineno - 1])
        name = assigned.group(1) if assigned else ""
        op, module, line = self.places[path].get(name, ("", "", ""))
        return f"{op} {name}".strip(), module, line

    def frame(self):
        """The frame of the generated code that runs, if any."""
        frame = sys._getframe(1) if self.places else None
        while frame is not None and frame.f_code.co_filename not in self.places:
            if source.name(frame.f_code.co_filename):
                return None
            frame = frame.f_back
        return frame


def in_mode_of_compilation(x):
    """The same tensor without data in the mode of compilation. Older versions of PyTorch know only one such mode, and
    convert only tensors with data."""
    context = torch._guards.TracingContext.try_get()
    if not isinstance(x, FakeTensor) or not context or x.fake_mode is context.fake_mode:
        return x
    symbols = context.tensor_to_context.get(x)
    of = symbols and symbols.tensor_source
    return context.fake_mode.from_tensor(x, symbolic_context=symbols, source=of)


def places(lowering):
    """Operation, path of the module, and source line of each buffer."""
    order = {node: at for at, node in enumerate(lowering.module.graph.nodes)}
    found = {}
    for buffer in lowering.buffers:
        node = buffer.get_origin_node()
        if not node:
            # A fused kernel ends with the last of its operations.
            node = max(buffer.origins, key=lambda node: order.get(node, -1), default=None)
        if node is not None:
            found[buffer.get_name()] = operation(node), module_path(node), source_line(node)
    return found


def operation(node):
    """Name of the operation that the program called."""
    target = node.meta.get("original_aten") or node.target
    name = getattr(target, "_opname", None) or getattr(target, "__name__", None) or str(target)
    return name.partition(".")[0]


def module_path(node):
    """Path of the module that a node of a forward, or the forward of a node of a backward, belongs to."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    path = VARIABLE.sub("", path).replace("._modules", "")
    parts = re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", path).split(".")
    return ".".join(part for part in parts if part not in ("_orig_mod", ""))


def source_line(node):
    """The innermost line of the program in the trace of a node."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\w+)', node.meta.get("stack_trace") or "")
    for path, line, function in reversed(frames):
        name = source.name(path)
        if name:
            return f"{name}:{line} {function}"
    return ""
