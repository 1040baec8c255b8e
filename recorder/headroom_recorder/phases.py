"""Phases of a training run, and the roles of its tensors, from hooks of modules, optimizers and backward."""

import torch
from torch.autograd import graph
from torch.optim import optimizer as optim
from torch.utils import _pytree as pytree

from .recorder import uncompiled


class EndOfRecording(BaseException):
    """Enough steps are recorded."""


# Operations of a loss.
LOSS = {
    "_log_softmax",
    "_log_softmax_backward_data",
    "nll_loss_forward",
    "nll_loss_backward",
    "nll_loss2d_forward",
    "nll_loss2d_backward",
}


class Phases:
    """Marks the events of a recorder with `setup`, `forward`, `backward`, `optimizer`, `evaluation` and `rest`."""

    def __init__(self, recorder, max_steps):
        self.recorder = recorder
        self.max_steps = max_steps
        self.steps = 0
        self.phase = "setup"
        self.n_backwards = 0
        # Whether an optimizer has stepped since the last forward.
        self.stepped = False
        # Optimizers that step now: one, or several that wrap each other. A step may run forward and backward itself.
        self.n_stepping = 0

    def start(self):
        torch.nn.modules.module.register_module_forward_pre_hook(self.before_forward)
        # A compiled step does not contain them.
        optim.register_optimizer_step_pre_hook(torch.compiler.disable(self.before_step))
        optim.register_optimizer_step_post_hook(torch.compiler.disable(self.after_step))
        run = graph._engine_run_backward

        def run_backward(*args, **kwargs):
            if self.recorder.n_pauses > 0:
                # Compilation traces a backward.
                return run(*args, **kwargs)
            if self.n_backwards == 0:
                from . import source

                self.recorder.backward_source = source.line()
                self.enter("backward")
            self.n_backwards += 1
            try:
                return run(*args, **kwargs)
            finally:
                self.n_backwards -= 1
                if self.n_backwards == 0:
                    self.recorder.backward_source = ""
                    self.enter("optimizer" if self.n_stepping > 0 else "after_backward")

        # Compiled functions call it too. What it calls may be compiled.
        run_backward = torch.compiler.disable(run_backward, recursive=False)
        graph._engine_run_backward = run_backward
        torch.autograd._engine_run_backward = run_backward

    def enter(self, phase):
        if phase != self.phase:
            self.phase = phase
            self.recorder.mark(phase)

    def before_forward(self, module, args):
        # The recorder's own hook runs first, so the outermost module is the only one of its stack.
        if torch.compiler.is_compiling() or self.n_backwards > 0 or len(self.recorder.modules) != 1:
            return
        self.name_parameters(module)
        if torch.is_grad_enabled():
            self.enter_forward()
        else:
            self.enter("evaluation")

    def before_compiled_forward(self):
        """A compiled function that is no module has a forward too."""
        if self.n_backwards == 0 and self.n_stepping == 0 and not self.recorder.modules:
            self.enter_forward()

    def enter_forward(self):
        """Enters a forward of training, unless enough steps are recorded."""
        if self.stepped and self.steps >= self.max_steps:
            raise EndOfRecording
        self.stepped = False
        self.enter("forward")

    def name_parameters(self, module):
        roles, recorder = self.recorder.roles, self.recorder
        tensors = [*module.named_parameters(), *module.named_buffers()]
        for name, tensor in tensors:
            block = recorder.block_of(tensor) if tensor.device.type == "cuda" else None
            if block and roles.get(block, ("input",))[0] == "input":
                roles[block] = "parameter", uncompiled(name)

    def name_of(self, parameter):
        return self.recorder.roles.get(self.recorder.block_of(parameter), ("", ""))[1]

    def before_step(self, optimizer, args, kwargs):
        self.n_stepping += 1
        self.enter("optimizer")
        self.name_gradients(optimizer)

    def name_gradients(self, optimizer):
        roles, recorder = self.recorder.roles, self.recorder
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                block = recorder.block_of(parameter) if parameter.device.type == "cuda" else None
                if block:
                    roles.setdefault(block, ("parameter", "parameter"))
                gradient = parameter.grad
                block = recorder.block_of(gradient) if gradient is not None and gradient.device.type == "cuda" else None
                if block:
                    roles[block] = "gradient", self.name_of(parameter)

    def after_step(self, optimizer, args, kwargs):
        self.n_stepping -= 1
        # Gradients of a closure.
        self.name_gradients(optimizer)
        roles, recorder = self.recorder.roles, self.recorder
        for parameter, state in optimizer.state.items():
            for value in pytree.tree_leaves(state):
                if isinstance(value, torch.Tensor) and value.device.type == "cuda":
                    block = recorder.block_of(value)
                    name = self.name_of(parameter) if isinstance(parameter, torch.Tensor) else ""
                    if block and roles.get(block, ("",))[0] != "parameter":
                        roles[block] = "optimizer_state", name
        if not self.stepped:
            self.stepped = True
            self.steps += 1
        self.enter("optimizer" if self.n_stepping > 0 else "rest")


def settled(events):
    """The events with the phase after a backward: that of the optimizer, if its step follows, as clipping belongs to it.
    Phases without events are left out."""
    settled, pending = [], []
    for event in events:
        if event[0] == "mark":
            for at in pending:
                settled[at] = ("mark", "optimizer" if event[1] == "optimizer" else "rest")
            pending = [len(settled)] if event[1] == "after_backward" else []
        settled.append(event)
    for at in pending:
        settled[at] = ("mark", "rest")
    is_mark = [event[0] == "mark" for event in settled] + [True]
    return [event for at, event in enumerate(settled) if not (is_mark[at] and is_mark[at + 1])]
