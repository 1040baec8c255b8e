"""The command: runs a program on fake tensors, and writes its recording."""

import argparse
import os
import runpy
import sys
import traceback
import warnings

OLDEST = (2, 6)
# Memory of an RTX 4070.
TOTAL = 12_552_041_922


def fail(cause, hint, action="record the program"):
    """Prints an error, and returns the exit status."""
    print(f"headroom: cannot {action}: {cause}\n\nhint: {hint}", file=sys.stderr)
    return 1


def parse(words):
    parser = argparse.ArgumentParser(
        prog="headroom_recorder",
        description="Runs a PyTorch program without a GPU, and writes its GPU allocations to a file for `headroom replay`.",
        usage="python -m headroom_recorder [OPTIONS] -- SCRIPT.py ... | -m MODULE ...",
    )
    option = parser.add_argument
    option("--out", help="file of the recording (default: SCRIPT.headroom)")
    option("--steps", type=int, default=2, help="optimizer steps to record (default: 2)")
    option("--gpu", default="NVIDIA GeForce RTX 4070", help="name of the GPU that the program finds (default: RTX 4070)")
    option("--capability", default="8.9", help="its compute capability (default: 8.9)")
    option("--multiprocessors", type=int, default=46, help="number of its multiprocessors (default: 46)")
    option("--threads-per-multiprocessor", type=int, default=1536, help="their threads (default: 1536)")
    option("--total-bytes", type=int, default=TOTAL, help="its memory (default: that of an RTX 4070)")
    option("--assume", type=float, help="value of every number of a GPU tensor that the program reads")
    option("--eager", action="store_true", help="ignore torch.compile")
    option("--strip", action="store_true", help="leave out names of the program, its modules and its source lines")
    option("program", nargs=argparse.REMAINDER, help="a script, or -m and a module, with its arguments")
    options = parser.parse_args(words)
    options.program = options.program[options.program[:1] == ["--"] :]
    if not options.program or options.program == ["-m"]:
        parser.error("a script or a module is missing")
    return options


def run(program):
    """Runs a script, or a module after `-m`, as Python does."""
    if program[0] == "-m":
        sys.argv = program[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")


def patch_program(recorder, compiled, eager):
    """Replaces what a program does besides its computation: workers, files, and compilation. Returns the names of what was
    replaced during the run."""
    import torch
    from torch.utils import _pytree as pytree
    from torch.utils.data import DataLoader

    init, load, replaced = DataLoader.__init__, torch.load, set()
    compile_model = torch.compile

    def without_workers(self, *args, **kwargs):
        init(self, *args[:5], **kwargs | dict(num_workers=0, prefetch_factor=None, persistent_workers=False))

    def load_and_see(*args, **kwargs):
        loaded = load(*args, **kwargs)
        # Loading moves a storage to the GPU without an operation.
        for tensor in pytree.tree_leaves(loaded):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                recorder.see(tensor, "torch.load")
        return loaded

    def no_save(*args, **kwargs):
        replaced.add("save")

    def no_compile(model=None, **kwargs):
        replaced.add("compile")
        return model if model is not None else (lambda function: function)

    def compile_for_gpu(model=None, **kwargs):
        compiled.start(kwargs.get("backend", "inductor"))
        return compile_model(model, **kwargs)

    def compile_in_place(module, *args, **kwargs):
        call = compile_for_gpu(module._call_impl, *args, **kwargs)

        def call_with_hooks(*args, **kwargs):
            if torch.compiler.is_compiling():
                return call(*args, **kwargs)
            # The compiled call has no hooks that apply to all modules.
            hooks = torch.nn.modules.module
            for hook in list(hooks._global_forward_pre_hooks.values()):
                hook(module, args)
            try:
                return call(*args, **kwargs)
            finally:
                for hook in list(hooks._global_forward_hooks.values()):
                    hook(module, args, None)

        module._compiled_call_impl = call_with_hooks

    DataLoader.__init__ = without_workers
    torch.load = load_and_see
    torch.save = no_save
    torch.compile = no_compile if eager else compile_for_gpu
    torch.nn.Module.compile = (lambda self, *args, **kwargs: no_compile(self) and None) if eager else compile_in_place
    return replaced


def name_of(program):
    """Name of the script or the module, and of the recording by default."""
    name = program[1] if program[0] == "-m" else os.path.basename(program[0])
    last = name.rpartition(".")[2] if program[0] == "-m" else os.path.splitext(name)[0]
    return name, f"{last or 'run'}.headroom"


def notes_of(recorder, compiled, replaced, strip):
    """What the recording assumes, one sentence each."""
    notes = []
    lines = {}
    for line, value in recorder.assumed:
        lines.setdefault(value, []).append(line)
    for value, at in lines.items():
        more = f" and {len(at) - 4} more lines" if len(at) > 4 else ""
        places = "" if strip else f": {', '.join(at[:4])}{more}"
        notes.append(f"The program reads values of GPU tensors, which are taken as {value}{places}.")
    notes.extend(sorted(compiled.notes))
    if "compile" in replaced:
        notes.append("The program calls torch.compile, and was recorded without compilation.")
    return notes


def last_line(error):
    """The innermost line of the program in a traceback."""
    from . import source

    lines = [
        f"{source.name(frame.filename)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if source.name(frame.filename)
    ]
    return lines[-1] if lines else "the program"


def main(words):
    options = parse(words)
    program = options.program
    if program[0] != "-m" and not os.path.exists(program[0]):
        return fail(f"{program[0]} does not exist", "paths start from the folder you are in")
    # A GPU of this machine is not used.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    warnings.filterwarnings("ignore", module="torch")
    # The recorder has such hooks, and its outermost module is the wrapper.
    warnings.filterwarnings("ignore", message="Using `torch.compile")
    try:
        import torch
    except ImportError:
        return fail(f"{sys.executable} has no PyTorch", "start the program with the Python that trains it")
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
        return fail(f"PyTorch {torch.__version__} is older than 2.6", "install a newer PyTorch")
    from . import file, gpu, phases
    from .compiled import Compiled
    from .recorder import CannotRecord, Recorder

    capability = tuple(int(part) for part in options.capability.split("."))
    device = gpu.Gpu(
        options.gpu, capability, options.multiprocessors, options.threads_per_multiprocessor, options.total_bytes
    )
    gpu.import_libraries()
    recorder = Recorder(device, options.assume, strict=True).start()
    course = phases.Phases(recorder, options.steps)
    course.start()
    recorder.compiled = compiled = Compiled(recorder, course.before_compiled_forward)
    replaced = patch_program(recorder, compiled, options.eager)
    try:
        run(program)
    except phases.EndOfRecording:
        pass
    except CannotRecord as error:
        return fail(error, error.hint)
    except SystemExit as error:
        if error.code not in (None, 0):
            return fail(f"the program exited with {error.code}", "run it once on its own to see that it works")
    except BaseException as error:
        cause = error
        while cause is not None and not isinstance(cause, CannotRecord):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            return fail(cause, cause.hint)
        traceback.print_exc()
        return fail(
            f"{last_line(error)}: {type(error).__name__}: {error}",
            "tensors have no data without a GPU; the traceback above shows the operation",
        )
    finally:
        compiled.close()
    if recorder.refusal is not None:
        return fail(recorder.refusal, recorder.refusal.hint)
    events = phases.settled(recorder.finish())
    if course.steps == 0:
        return fail("no optimizer of PyTorch made a step", "record a program that trains")
    notes = notes_of(recorder, compiled, replaced, options.strip)
    name, path = name_of(program)
    path = options.out or path
    label_of = file.stripped_label_of if options.strip else file.label_of
    try:
        with open(path, "wb") as out:
            origin = torch.__version__, file.PROGRAM if options.strip else name
            file.write(out, recorder, events, origin, course.steps, notes, label_of)
    except OSError as error:
        return fail(error.strerror, "name another file", f"write {path}")
    steps = "1 step" if course.steps == 1 else f"{course.steps} steps"
    size = os.path.getsize(path)
    print(f"Recorded {steps} in {path}, {size:,} bytes.", file=sys.stderr)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return 0
