"""A GPU that PyTorch believes in: its properties, and patches of `torch.cuda` for a machine without one."""

import contextlib
import ctypes
import importlib
import math
import os
import re
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensor


@dataclass(frozen=True)
class Gpu:
    """Properties on which PyTorch's choice of kernels and the size of its workspaces depend."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    threads_per_multiprocessor: int
    total_bytes: int

    @property
    def cublas_workspace_bytes(self) -> int:
        """`parseChosenWorkspaceSize` in aten/src/ATen/cuda/CublasHandlePool.cpp."""
        return 32 << 20 if self.capability[0] == 9 else 8320 << 10


GPUS = {
    "8.9": Gpu("NVIDIA GeForce RTX 4090", (8, 9), 128, 1536, 24 << 30),
    "9.0": Gpu("NVIDIA H200", (9, 0), 132, 2048, 141 << 30),
}

# Objects that C++ code refers to for the rest of the process.
_kept = []


WORD = ctypes.c_void_p
# Two words precede the entries of a table of virtual functions: the offset to the top, and the type.
BEFORE_TABLE = 2
# Words of a table that are copied, more than it has: a class adds entries to those of its interface.
TABLE = 120


def virtual_functions(header, interface):
    """Names of an interface's virtual functions, in the order of their table. A destructor has two entries."""
    path = os.path.join(os.path.dirname(torch.__file__), "include", header)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text[text.index(f"struct {interface}") :], flags=re.DOTALL)
    names = []
    for tilde, name in re.findall(r"virtual\s+[\w:<>\s&*,]*?\s?[&*]?(~?)(\w+)\s*\(", text):
        names += [name] * (2 if tilde else 1)
    return names


def with_functions(table, names, replaced):
    """A copy of a table of virtual functions, some of them replaced: their names, with the types of their results and
    arguments and a function."""
    start = table - ctypes.sizeof(WORD) * BEFORE_TABLE
    words = [WORD.from_address(start + ctypes.sizeof(WORD) * at).value for at in range(TABLE)]
    for name, (types, function) in replaced.items():
        callback = ctypes.CFUNCTYPE(*types)(function)
        words[BEFORE_TABLE + names.index(name)] = ctypes.cast(callback, WORD).value
        _kept.append(callback)
    copy = (WORD * len(words))(*words)
    _kept.append(copy)
    return ctypes.addressof(copy) + ctypes.sizeof(WORD) * BEFORE_TABLE


def patch_autograd():
    """Lets backward run: `CUDAHooks::hasPrimaryContext` answers no instead of raising. The hooks object gets a copy of its
    table of virtual functions with that entry replaced. The header that PyTorch installs has the order of the entries."""
    if not torch.version.cuda:
        # Such a build has no hooks that raise.
        return
    patch_guard()
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
    get_hooks = library["_ZN2at6detail12getCUDAHooksEv"]
    get_hooks.restype = WORD
    table = WORD.from_address(get_hooks())
    names = virtual_functions("ATen/detail/AcceleratorHooksInterface.h", "TORCH_API AcceleratorHooksInterface")
    types = ctypes.c_bool, WORD, ctypes.c_byte
    table.value = with_functions(table.value, names, {"hasPrimaryContext": (types, lambda this, device: False)})


def patch_guard():
    """Lets C++ code select a GPU without effect. Newer versions of PyTorch have a function for it; in older ones, the GPU
    gets the guard of the CPU, which has no effect either."""
    if hasattr(torch._C, "_ensureCUDADeviceGuardSet"):
        torch._C._ensureCUDADeviceGuardSet()
        return
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
    guards = (WORD * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    names = virtual_functions("c10/core/impl/DeviceGuardImplInterface.h", "C10_API DeviceGuardImplInterface")
    # A device has two bytes, its type and its number. That of CUDA is 1; -1 is no number.
    cuda, device = 0xFF01, ctypes.c_uint16
    # A stream has two words, of which a callback returns the first: its device. No number of a stream matters, because
    # nothing waits for its events.
    stream, first = ctypes.c_uint64, 0x0001
    replaced = {
        "type": ((ctypes.c_byte, WORD), lambda this: 1),
        "exchangeDevice": ((device, WORD, device), lambda this, other: cuda),
        "getDevice": ((device, WORD), lambda this: cuda),
        "getStream": ((stream, WORD, device), lambda this, device: first),
        "getDefaultStream": ((stream, WORD, device), lambda this, device: first),
        "exchangeStream": ((stream, WORD, stream, stream), lambda this, device, number: first),
        "record": ((None, WORD, WORD, WORD, ctypes.c_byte, ctypes.c_int), lambda *args: None),
        "block": ((None, WORD, WORD, WORD), lambda *args: None),
        "destroyEvent": ((None, WORD, WORD, ctypes.c_byte), lambda *args: None),
    }
    guard = WORD(with_functions(WORD.from_address(guards[0]).value, names, replaced))
    _kept.append(guard)
    guards[1] = ctypes.addressof(guard)


class Properties:
    """What `torch.cuda.get_device_properties` returns."""

    def __init__(self, gpu: Gpu):
        self.name = gpu.name
        self.major, self.minor = gpu.capability
        self.multi_processor_count = gpu.multiprocessors
        self.max_threads_per_multi_processor = gpu.threads_per_multiprocessor
        self.total_memory = gpu.total_bytes
        self.regs_per_multiprocessor = 65536
        self.warp_size = 32
        self.max_threads_per_block = 1024
        self.shared_memory_per_block = 48 << 10
        self.shared_memory_per_block_optin = 227 << 10 if gpu.capability[0] == 9 else 99 << 10
        self.shared_memory_per_multiprocessor = 228 << 10 if gpu.capability[0] == 9 else 100 << 10
        self.L2_cache_size = 60 << 20
        self.gcnArchName = ""
        self.is_integrated = False
        self.uuid = "fake"


class Stream:
    """A stream or an event, on which nothing waits."""

    def __init__(self, *args, **kwargs):
        self.cuda_stream = self.stream_id = self.device_index = 0
        self.device = torch.device("cuda:0")
        self.device_type = 1

    def __enter__(self):
        return self

    def __exit__(self, *args):
        pass

    def query(self):
        return True

    def elapsed_time(self, other):
        return 1.0

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def import_libraries():
    """Imports libraries that look up functions of `torch.cuda`, before these are replaced."""
    for name in ("accelerate", "transformers.trainer"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        utils = importlib.import_module("transformers.utils.import_utils")
        # For fake tensors, transformers would take the branches of torch.export.
        utils.is_fake_tensor = lambda tensor: False


def patch_torch(gpu: Gpu, empty_cache):
    """Replaces what would need a driver. `empty_cache` is called for `torch.cuda.empty_cache()`."""
    cuda = torch.cuda

    def returns(value):
        return lambda *args, **kwargs: value

    state = torch.zeros(16, dtype=torch.uint8)
    values = [
        (True, "is_available is_initialized is_bf16_supported"),
        (False, "is_current_stream_capturing"),
        (None, "init _lazy_init _lazy_call synchronize set_device ipc_collect manual_seed manual_seed_all seed seed_all"),
        (None, "set_rng_state set_rng_state_all reset_peak_memory_stats reset_max_memory_allocated"),
        (0, "current_device memory_allocated max_memory_allocated memory_reserved max_memory_reserved"),
    ]
    for value, names in values:
        for name in names.split():
            setattr(cuda, name, returns(value))
    cuda.device_count = returns(1)
    cuda.empty_cache = lambda: empty_cache()
    cuda.get_device_name = returns(gpu.name)
    cuda.get_device_capability = returns(gpu.capability)
    cuda.get_device_properties = returns(Properties(gpu))
    cuda.get_arch_list = returns(["sm_%d%d" % gpu.capability])
    cuda.mem_get_info = returns((gpu.total_bytes, gpu.total_bytes))
    cuda.memory_stats = returns({})
    cuda.current_stream = cuda.default_stream = returns(Stream())
    cuda.Stream = cuda.Event = Stream
    cuda.stream = cuda.device = cuda.device_of = cuda._DeviceGuard = lambda *args, **kwargs: contextlib.nullcontext()
    cuda.get_rng_state = returns(state)
    cuda.get_rng_state_all = returns([state])
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
    torch.Tensor.is_pinned = returns(False)
    torch.Tensor.record_stream = returns(None)
    import torch._subclasses.fake_tensor as fake_tensor
    import torch.cuda.amp.common as amp
    import torch.optim.optimizer as optimizer
    import torch.utils._foreach_utils as foreach
    import torch.utils.checkpoint as checkpoint

    checkpoint.get_device_states = returns(([], []))
    checkpoint.set_device_states = returns(None)
    fake_tensor.init_gpu_context = returns(None)
    fake_tensor.FakeTensorMode.avoid_device_init = property(returns(True), returns(None))
    amp.amp_definitely_not_available = returns(False)
    foreach._foreach_supported_types.append(FakeTensor)
    optimizer._foreach_supported_types.append(FakeTensor)
    patch_values()
    patch_modules()


def patch_values():
    """Answers Python's questions about the values of fake tensors with zeros."""
    tensor = torch.Tensor
    numpy, tolist, to_text = tensor.numpy, tensor.tolist, tensor.__format__

    def zeros(fake):
        import numpy as np

        return np.zeros(tuple(fake.shape), dtype=str(fake.dtype).removeprefix("torch.").replace("bfloat16", "float32"))

    def format_value(self, spec):
        if not isinstance(self, FakeTensor):
            return to_text(self, spec)
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, "")

    tensor.__format__ = format_value
    tensor.numpy = lambda self, *args, **kwargs: (
        zeros(self) if isinstance(self, FakeTensor) else numpy(self, *args, **kwargs)
    )
    tensor.tolist = lambda self: zeros(self).tolist() if isinstance(self, FakeTensor) else tolist(self)


def elements(tensor: torch.Tensor) -> int:
    """Number of elements."""
    return math.prod(tensor.shape)


def patch_modules():
    """`Module.to` as on real tensors: a parameter that is already there stays, and one that moves stays shared."""

    def apply(module, function, recurse=True, moved=None):
        moved = {} if not isinstance(moved, dict) else moved

        def new(tensor, wrap):
            if id(tensor) not in moved:
                with torch.no_grad():
                    value = function(tensor)
                result = tensor if value is tensor else wrap(value)
                # The second entry keeps the tensor alive, and with it its number.
                moved[id(tensor)] = moved[id(result)] = result, tensor
            return moved[id(tensor)][0]

        for child in module.children() if recurse else ():
            apply(child, function, True, moved)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = new(
                    parameter, lambda value, of=parameter: torch.nn.Parameter(value, of.requires_grad)
                )
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = new(buffer, lambda value: value)
        return module

    torch.nn.Module._apply = lambda self, function, recurse=True: apply(self, function, recurse)
