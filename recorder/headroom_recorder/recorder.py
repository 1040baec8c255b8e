"""The allocations and frees of a program on fake CUDA tensors, in order.

Tensors have shapes and dtypes, and no data. Each new storage is an allocation; the end of its life is a free. Autograd,
autocast, optimizers, checkpoints and the program are the real ones.
"""

import contextlib
import gc
import math
import sys
import threading
import weakref
from typing import NamedTuple

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from . import attention, hidden, source
from . import gpu as gpus

BLOCK = 512
# CPU tensors of fewer elements are real, because programs compute with batches, indices and losses.
SMALL = 65536
# Operations on values that fake tensors do not have.
VALUE_ERRORS = (
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.DataDependentOutputException,
)


class CannotRecord(RuntimeError):
    """The program needs values that tensors do not have without a GPU."""

    def __init__(self, cause, hint):
        super().__init__(cause)
        self.hint = hint


class Info(NamedTuple):
    """What is known of a block at its allocation."""

    path: str
    source: str
    shape: tuple[int, ...]
    dtype: str


def tensors_of(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class Recorder(TorchDispatchMode):
    """Records events while it is entered: `("alloc", block, bytes, op, module)`, `("free", block)`, `("mark", name)`,
    `("empty_cache",)`, and for memory that kernels allocate themselves `("scratch", buffer, op, module)`,
    `("end_of_operation",)` and `("workspace", library, module)`.

    `assume` is the value of every number that the program reads. Without it, a float is 1.0, and whole numbers cannot be
    read if `strict`.
    """

    def __init__(self, gpu, assume=None, strict=False):
        super().__init__()
        self.gpu = gpu
        self.assume = assume
        self.strict = strict
        self.events = []
        self.n_blocks = 0
        self.storages = {}
        self.infos = {}
        self.handles = set()
        self.modules = []
        self.paths = weakref.WeakKeyDictionary()
        self.true_blocks = set()
        # Blocks of parameters with their names, and all other roles.
        self.roles = {}
        # Lines that read values, with what was assumed.
        self.assumed = {}
        self.backward_source = ""
        # What is known of compiled code, if the program may have such.
        self.compiled = None
        self.n_pauses = 0
        # The first reason not to record the program. A program may catch it.
        self.refusal = None

    supports_higher_order_operators = True

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
        """Keeps the stack of the running modules."""
        hooks = torch.nn.modules.module

        def pop(*args):
            if not torch.compiler.is_compiling() and self.modules:
                self.modules.pop()

        def push(module, args):
            if torch.compiler.is_compiling():
                return
            if not self.modules and module not in self.paths:
                self.paths.update((below, uncompiled(name)) for name, below in module.named_modules())
            self.modules.append(module)

        hooks.register_module_forward_pre_hook(push)
        hooks.register_module_forward_hook(pop, always_call=True)

    def mark(self, name):
        self.events.append(("mark", name))

    def module(self):
        """Class of the running module."""
        return type(self.modules[-1]).__name__ if self.modules else ""

    def path(self):
        """Path of the running module."""
        return self.paths.get(self.modules[-1], self.module()) if self.modules else ""

    @contextlib.contextmanager
    def pause(self):
        """Records nothing meanwhile, as compilation calls operations that do not run on the GPU."""
        self.n_pauses += 1
        try:
            yield
        finally:
            self.n_pauses -= 1

    @contextlib.contextmanager
    def resume(self):
        """Records within a pause, in which PyTorch may have left the modes."""
        n_pauses, self.n_pauses = self.n_pauses, 0
        try:
            with contextlib.ExitStack() as modes:
                if torch._C._len_torch_dispatch_stack() == 0:
                    modes.enter_context(self.fake)
                    modes.enter_context(self)
                yield
        finally:
            self.n_pauses = n_pauses

    def refuse(self, cause, hint):
        """Ends the recording with an error."""
        error = CannotRecord(cause, hint)
        self.refusal = self.refusal or error
        raise error

    def alloc(self, n_bytes, op, shape=(), dtype="uint8"):
        self.n_blocks += 1
        path, line = self.path(), ""
        place = self.compiled.place() if self.compiled else None
        if place is not None:
            op, below, line = place
            path = ".".join(part for part in (path, below) if part)
        line = line or source.line() or self.backward_source
        self.infos[self.n_blocks] = Info(path, line, tuple(shape), dtype)
        self.events.append(("alloc", self.n_blocks, n_bytes, op, self.module()))
        return self.n_blocks

    def see(self, tensor, op):
        """Allocates a block for the tensor's storage, if it is new and not empty. The block ends with the storage.
        Returns the block, or `None`."""
        storage = tensor.untyped_storage()
        key, n_bytes = id(storage), int(storage.nbytes())
        if key in self.storages or n_bytes == 0:
            return None
        block = self.alloc(n_bytes, op, (int(n) for n in tensor.shape), str(tensor.dtype).removeprefix("torch."))

        def end(_):
            self.storages.pop(key, None)
            self.events.append(("free", block))

        self.storages[key] = weakref.ref(storage, end), block
        return block

    def block_of(self, tensor):
        entry = self.storages.get(id(tensor.untyped_storage()))
        return entry and entry[1]

    def note(self, what):
        """Remembers that a line reads a value."""
        self.assumed.setdefault((source.line() or self.backward_source, what))

    def value_of(self, tensor):
        """The answer to a question about a value, as in a run that goes well: all tokens are attended to, and no gradient
        is infinite."""
        if self.compiled and self.compiled.frame() is not None:
            # Generated code passes values on to its kernels.
            return 1.0 if tensor.dtype.is_floating_point else 1
        if tensor.dtype == torch.bool:
            value = self.block_of(tensor) in self.true_blocks
            self.note(str(value))
            return value
        if source.is_in("torch/amp/grad_scaler.py"):
            return 0.0
        if tensor.dtype.is_floating_point:
            value = float(self.assume) if self.assume is not None else 1.0
            self.note(str(value))
            return value
        if self.assume is not None:
            value = int(self.assume)
        elif self.strict:
            self.refuse(
                f"{source.line()} reads a whole number of a GPU tensor, which has no data without a GPU",
                "pass --assume N to record the run as if the number were N",
            )
        else:
            value = 1
        self.note(str(value))
        return value

    def call(self, func, args, kwargs, name):
        try:
            return func(*args, **kwargs)
        except VALUE_ERRORS as error:
            hint = "compute it on the CPU, or use an operation whose result has a fixed shape, such as torch.where"
            raise CannotRecord(
                f"the shape of the result of {name} at {source.line()} depends on the values of a GPU tensor, which has no "
                "data without a GPU",
                hint,
            ) from error
        except fake_tensor.UnsupportedOperatorException as error:
            raise CannotRecord(
                f"the operation {func} at {source.line()} has no implementation for tensors without data",
                "register one with torch.library.register_fake",
            ) from error

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.n_pauses > 0:
            return func(*args, **kwargs)
        if isinstance(func, HigherOrderOperator):
            return self.call_with_state(func, args, kwargs)
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
        if not any(isinstance(tensor, FakeTensor) for tensor in tensors_of((args, kwargs))):
            # So do older versions of PyTorch with CPU tensors that are not fake.
            args, kwargs = pytree.tree_map_only(torch.Tensor, self.fake.from_tensor, (args, kwargs))
        # The sum of the gradients of one tensor, of which autograd calls the addition itself. A view also holds its base.
        adds = name == "add" and is_called_by_autograd() and is_dense(args[0]) and not is_view(args[0])
        sum_before = self.block_of(args[0]) if adds else None
        # Scratch memory that precedes the outputs depends on the arguments only.
        before = hidden.buffers(name, args, [args[0]])[0] if args else []
        self.scratch(before, name)
        out = self.call(func, args, kwargs, name)
        outputs = hidden.outputs_in_order(name, args, pytree.tree_leaves(out))
        on_gpu = [x for x in outputs if isinstance(x, torch.Tensor) and x.device.type == "cuda"]
        for tensor in on_gpu:
            self.see_result(tensor, name, args)
        if name in ("all", "eq"):
            self.true_blocks.update(self.block_of(x) for x in on_gpu)
        if sum_before is not None and self.events and self.events[-1][0] == "alloc":
            self.events[-1] += (sum_before,)
        after = hidden.buffers(name, args, on_gpu)[1] if on_gpu else []
        self.scratch(after, name)
        if on_gpu:
            for library in hidden.workspaces(name, args):
                handle = library, threading.get_ident()
                if handle not in self.handles:
                    self.handles.add(handle)
                    self.events.append(("workspace", library, self.module()))
        if before or after:
            self.events.append(("end_of_operation",))
        return out

    def call_with_state(self, func, args, kwargs):
        """Runs an operation with a state of the random numbers, as compiled checkpoints do."""
        name = func.name()
        if name == "run_and_save_rng_state":
            with self:
                return torch.cuda.get_rng_state(), args[0](*args[1:], **kwargs)
        if name == "run_with_rng_state":
            with self:
                return args[1](*args[2:], **kwargs)
        self.refuse(f"{source.line()} calls {name}, which is not recorded", "compile the code that calls it")

    def scratch(self, buffers, op):
        for buffer in buffers:
            if isinstance(buffer, hidden.Scratch) or buffer > 0:
                self.events.append(("scratch", buffer, op + " scratch", self.module()))

    def see_result(self, tensor, name, args):
        block = self.see(tensor, name)
        copied = args[0] if block and name == "_to_copy" else None
        if not isinstance(copied, torch.Tensor):
            return
        of, parameter = self.roles.get(self.block_of(copied), (None, ""))
        if copied.device.type == "cpu":
            self.roles[block] = "input", name
        elif of == "parameter" and self.modules:
            # Within a module, only autocast casts parameters. Its state is not visible here.
            self.roles[block] = "cast_cache", "cast of " + parameter

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
                if event[1] in self.roles:
                    self.roles.setdefault(block_of[event[1]], self.roles[event[1]])
                at += 2
                continue
            if event[0] in ("alloc", "free"):
                event = (event[0], block_of.get(event[1], event[1]), *event[2:5])
            events.append(event)
            at += 1
        return events


def expanded(gpu, events):
    """The events with the buffers that kernels allocate themselves on a GPU: `("alloc", …)`, `("free", block)`,
    `("mark", name)` and `("empty_cache",)`. Blocks have new numbers."""
    n_blocks, block_of, held = 0, {}, []
    for kind, *rest in events:
        if kind == "alloc":
            n_blocks += 1
            block_of[rest[0]] = n_blocks
            yield ("alloc", n_blocks, *rest[1:])
        elif kind == "free":
            yield ("free", block_of.pop(rest[0]))
        elif kind == "scratch":
            for n_bytes in hidden.sizes(gpu, rest[0]):
                n_blocks += 1
                held.append(n_blocks)
                yield ("alloc", n_blocks, n_bytes, *rest[1:])
        elif kind == "end_of_operation":
            yield from (("free", block) for block in held)
            held = []
        elif kind == "workspace":
            library, module = rest
            n_blocks += 1
            n_bytes = gpu.cublas_workspace_bytes if library == "cublas" else hidden.CUBLASLT_WORKSPACE
            yield ("alloc", n_blocks, n_bytes, library + " workspace", module)
        else:
            yield (kind, *rest)


# Functions that wrap every `__torch_dispatch__`.
WRAPPERS = ("torch/_compile.py", "torch/_dynamo/eval_frame.py")


def is_called_by_autograd():
    """Whether autograd's engine itself called the operation that is being dispatched: no Python function did, or only the
    one that starts a backward, as a reentrant checkpoint does within another backward."""
    frame = sys._getframe(1).f_back
    while frame is not None and frame.f_code.co_filename.endswith(WRAPPERS):
        frame = frame.f_back
    return not frame or frame.f_code.co_name == "_engine_run_backward"


def uncompiled(name):
    """A module's path without the wrapper of `torch.compile`."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def is_view(tensor):
    """Whether a tensor is a view that holds its base. A view of a buffer of generated code holds only the storage."""
    return tensor._is_view() and not getattr(tensor._base, "is_generated", False)


def is_dense(tensor):
    """`is_non_overlapping_and_dense`."""
    prims = torch._prims_common
    # Its older name.
    is_dense = getattr(prims, "is_non_overlapping_and_dense_or_false", None) or prims.is_non_overlapping_and_dense
    return isinstance(tensor, torch.Tensor) and is_dense(tensor)


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
