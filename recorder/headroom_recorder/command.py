"""The command: runs a program on fake tensors, and writes its recording."""

import argparse
import os
import runpy
import sys
import traceback
import warnings

OLDEST = (2, 6)


def fail(cause, hint, action="record the program"):
    """Prints an error, and returns the exit status."""
    print(f"headroom: cannot {action}: {cause}\n\nhint: {hint}", file=sys.stderr)
    return 1


def parse(words):
    parser = argparse.ArgumentParser(prog="headroom record")
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--capability", required=True)
    parser.add_argument("--multiprocessors", type=int, required=True)
    parser.add_argument("--threads-per-multiprocessor", type=int, required=True)
    parser.add_argument("--total-bytes", type=int, required=True)
    parser.add_argument("--assume", type=float)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    return parser.parse_args(words)


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


def patch_program(recorder, eager):
    """Replaces what a program does besides its computation: workers, files, and compilation. Returns the names of what was
    replaced during the run."""
    import torch
    from torch.utils import _pytree as pytree
    from torch.utils.data import DataLoader

    from . import source
    from .recorder import CannotRecord

    init, load, replaced = DataLoader.__init__, torch.load, set()

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
        if not eager:
            raise CannotRecord(
                f"{source.line()} calls torch.compile, and the kernels that it generates are not recorded",
                "switch compilation off in the program, or pass --eager to record the run as if it were",
            )
        replaced.add("compile")
        return model if model is not None else (lambda function: function)

    DataLoader.__init__ = without_workers
    torch.load = load_and_see
    torch.save = no_save
    torch.compile = no_compile
    torch.nn.Module.compile = lambda self, *args, **kwargs: no_compile(self) and None
    return replaced


def notes_of(recorder, replaced):
    """What the recording assumes, one sentence each."""
    notes = []
    lines = {}
    for line, value in recorder.assumed:
        lines.setdefault(value, []).append(line)
    for value, at in lines.items():
        more = f" and {len(at) - 4} more lines" if len(at) > 4 else ""
        notes.append(f"The program reads values of GPU tensors, which are taken as {value}: {', '.join(at[:4])}{more}.")
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
    program = options.program[options.program[:1] == ["--"] :]
    if program[0] != "-m" and not os.path.exists(program[0]):
        return fail(f"{program[0]} does not exist", "paths start from the folder you are in")
    warnings.filterwarnings("ignore", module="torch")
    try:
        import torch
    except ImportError:
        return fail(f"{sys.executable} has no PyTorch", "start the program with the Python that trains it")
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
        return fail(f"PyTorch {torch.__version__} is older than 2.6", "install a newer PyTorch")
    from . import file, gpu, phases
    from .recorder import CannotRecord, Recorder

    capability = tuple(int(part) for part in options.capability.split("."))
    device = gpu.Gpu(
        options.gpu, capability, options.multiprocessors, options.threads_per_multiprocessor, options.total_bytes
    )
    gpu.import_libraries()
    recorder = Recorder(device, options.assume, strict=True).start()
    course = phases.Phases(recorder, options.steps)
    course.start()
    replaced = patch_program(recorder, options.eager)
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
    events = phases.settled(recorder.finish())
    if course.steps == 0:
        return fail("no optimizer of PyTorch made a step", "record a program that trains")
    notes = notes_of(recorder, replaced)
    name = program[1] if program[0] == "-m" else os.path.basename(program[0])
    try:
        with open(options.out, "wb") as out:
            file.write(out, recorder, events, torch.__version__, name, course.steps, notes)
    except OSError as error:
        return fail(error.strerror, "name another file with -o FILE", f"write {options.out}")
    steps = "1 step" if course.steps == 1 else f"{course.steps} steps"
    size = os.path.getsize(options.out)
    print(f"Recorded {steps} in {options.out}, {size:,} bytes.", file=sys.stderr)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return 0
