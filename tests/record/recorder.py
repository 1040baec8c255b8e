"""The allocations and frees of a program on fake CUDA tensors, in order.

Tensors have shapes and dtypes, and no data. Each new storage is an allocation; the end of its life is a free. Autograd,
autocast, optimizers, checkpoints and the program are the real ones.
"""

import gc
import math
import sys
import threading
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

import attention
import gpu as gpus
import hidden

BLOCK = 512
# CPU tensors of fewer elements are real, because programs compute with batches, indices and losses.
SMALL = 65536


def tensors_of(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class Recorder(TorchDispatchMode):
    """Records events while it is entered: `("alloc", id, bytes, op, module)`, `("free", id)`, `("mark", name)` and
    `("empty_cache",)`."""

    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu
        self.events = []
        self.n_blocks = 0
        self.storages = {}
        self.handles = set()
        self.modules = []
        self.true_blocks = set()
        self.paused = False

    @classmethod
    def is_infra_mode(cls):
        return True

    def start(self):
        """Replaces parts of PyTorch for the rest of the process, and starts to record."""
        import torch._dynamo.trace_rules as rules

        # Fails later: it refuses two names of one function.
        rules.get_torch_obj_rule_map()
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        gc.collect()
        gpus.patch_torch(self.gpu, lambda: self.events.append(("empty_cache",)))
        attention.patch(self.gpu)
        gpus.patch_autograd()
        self.follow_modules()
        self.fake.__enter__()
        self.__enter__()
        return self

    def follow_modules(self):
        """Keeps the stack of the classes of running modules."""
        hooks = torch.nn.modules.module

        def pop(*args):
            if self.modules:
                self.modules.pop()

        hooks.register_module_forward_pre_hook(lambda module, args: self.modules.append(type(module).__name__))
        hooks.register_module_forward_hook(pop, always_call=True)

    def mark(self, name):
        self.events.append(("mark", name))

    def alloc(self, n_bytes, op):
        self.n_blocks += 1
        module = self.modules[-1] if self.modules else ""
        self.events.append(("alloc", self.n_blocks, n_bytes, op, module))
        return self.n_blocks

    def see(self, tensor, op):
        """Allocates a block for the tensor's storage, if it is new and not empty. The block ends with the storage."""
        storage = tensor.untyped_storage()
        key, n_bytes = id(storage), int(storage.nbytes())
        if key in self.storages or n_bytes == 0:
            return
        block = self.alloc(n_bytes, op)

        def end(_):
            self.storages.pop(key, None)
            self.events.append(("free", block))

        self.storages[key] = weakref.ref(storage, end), block

    def block_of(self, tensor):
        entry = self.storages.get(id(tensor.untyped_storage()))
        return entry and entry[1]

    def value_of(self, tensor):
        """The answer to a question about a value, as in a run that goes well: all tokens are attended to, and no gradient
        is infinite."""
        if tensor.dtype == torch.bool:
            return self.block_of(tensor) in self.true_blocks
        return 0.0 if tensor.dtype.is_floating_point else 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        name = func.overloadpacket._qualified_op_name.split("::")[1]
        if stays_real(args, kwargs):
            with no_dispatch():
                return func(*args, **kwargs)
        if name == "_local_scalar_dense":
            return self.value_of(args[0])
        for tensor in tensors_of((args, kwargs)):
            # Small CPU tensors carry their values, which FakeTensorMode would copy to a real GPU.
            if isinstance(tensor, FakeTensor) and tensor.constant is not None:
                tensor.constant = None
        # The sum of the gradients of one tensor, of which autograd calls the addition itself. A view also holds its base.
        adds = name == "add" and is_called_by_autograd() and is_dense(args[0]) and not args[0]._is_view()
        sum_before = self.block_of(args[0]) if adds else None
        # Scratch memory that precedes the outputs depends on the arguments only.
        held = [self.alloc(n, name + " scratch") for n in hidden.buffers(self.gpu, name, args, [args[0]])[0]] if args else []
        out = func(*args, **kwargs)
        outputs = hidden.outputs_in_order(name, args, pytree.tree_leaves(out))
        on_gpu = [x for x in outputs if isinstance(x, torch.Tensor) and x.device.type == "cuda"]
        for tensor in on_gpu:
            self.see(tensor, name)
        if name in ("all", "eq"):
            self.true_blocks.update(self.block_of(x) for x in on_gpu)
        if sum_before is not None and self.events and self.events[-1][0] == "alloc":
            self.events[-1] += (sum_before,)
        if on_gpu:
            held += [self.alloc(n, name + " scratch") for n in hidden.buffers(self.gpu, name, args, on_gpu)[1] if n > 0]
            for library, n_bytes in hidden.workspaces(self.gpu, name, args).items():
                handle = library, threading.get_ident()
                if handle not in self.handles:
                    self.handles.add(handle)
                    self.alloc(n_bytes, library + " workspace")
        self.events.extend(("free", block) for block in held)
        return out

    def finish(self):
        """Stops, and returns the events.

        Autograd adds gradients in place, except those of tensor subclasses. Here, a sum takes the block of its first
        term, if nothing else holds that: `can_accumulate_inplace` in torch/csrc/autograd/input_buffer.cpp, and
        `accumulateGrad` in functions/accumulate_grad.h.
        """
        self.__exit__(None, None, None)
        self.fake.__exit__(None, None, None)
        events, block_of, at = [], {}, 0
        found = list(self.events)
        while at < len(found):
            event = found[at]
            if event[0] == "alloc" and len(event) == 6 and found[at + 1 : at + 2] == [("free", event[5])]:
                block_of[event[1]] = block_of.get(event[5], event[5])
                at += 2
                continue
            if event[0] in ("alloc", "free"):
                event = (event[0], block_of.get(event[1], event[1]), *event[2:5])
            events.append(event)
            at += 1
        return events


# Functions that wrap every `__torch_dispatch__`.
WRAPPERS = ("torch/_compile.py", "torch/_dynamo/eval_frame.py")


def is_called_by_autograd():
    """Whether autograd's engine itself called the operation that is being dispatched: no Python function did, or only the
    one that starts a backward, as a reentrant checkpoint does within another backward."""
    frame = sys._getframe(1).f_back
    while frame is not None and frame.f_code.co_filename.endswith(WRAPPERS):
        frame = frame.f_back
    return not frame or frame.f_code.co_name == "_engine_run_backward"


def is_dense(tensor):
    """`is_non_overlapping_and_dense`."""
    return isinstance(tensor, torch.Tensor) and torch._prims_common.is_non_overlapping_and_dense_or_false(tensor)


def stays_real(args, kwargs):
    """Whether an operation computes with data: on the CPU, except on large tensors of numbers, as weights are."""
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return False
    tensors = tensors_of((args, kwargs))
    if tensors:
        return all(not isinstance(x, FakeTensor) and x.device.type == "cpu" for x in tensors)
    sizes = next((x for x in args if isinstance(x, (list, tuple))), ())
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return math.prod(int(n) for n in sizes if isinstance(n, int)) <= SMALL or not dtype.is_floating_point
