"""Writes a recording. docs/src/reference/recording.md of Headroom describes the format."""

from . import hidden
from .phases import LOSS

MAGIC = b"HEADROOM"
VERSION = 2
MARKS = ("setup", "forward", "backward", "optimizer", "evaluation", "rest")
ROLES = (
    "activation",
    "parameter",
    "gradient",
    "optimizer_state",
    "cast_cache",
    "logits_and_loss",
    "input",
    "workspace",
)
DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "uint64",
    "bool",
)
SCRATCH = {
    "bytes": 0,
    "cublas": 1,
    "flash_forward": 2,
    "efficient_backward": 3,
    "row_sums": 4,
    "embedding_backward": 5,
}
# Kinds of records: the low two bits of their first number.
ALLOC, FREE, SCRATCH_RECORD, CONTROL = range(4)
END, TEXT, LABEL, MARK, EMPTY_CACHE, END_OF_OPERATION, NOTE = range(7)
MAX_TEXT_BYTES = 4096
MAX_RANK = 16


def number(value):
    """An unsigned LEB128 number."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def text(value):
    encoded = value.encode("utf-8", "replace")[:MAX_TEXT_BYTES].decode("utf-8", "ignore").encode("utf-8")
    return number(len(encoded)) + encoded


class Writer:
    """Writes records to a file that is open for binary writing."""

    def __init__(self, file, torch_version, program, capability, steps):
        self.file = file
        self.texts = {"": 0}
        self.labels = {}
        self.n_blocks = self.n_events = 0
        self.blocks = {}
        header = [text(torch_version), text(program), *map(number, (*capability, steps))]
        file.write(MAGIC + number(VERSION) + b"".join(header))

    def record(self, kind, value, *numbers):
        self.file.write(b"".join(map(number, (value << 2 | kind, *numbers))))

    def event(self, kind, value, *numbers):
        self.n_events += 1
        self.record(kind, value, *numbers)

    def text(self, value):
        """Number of a text, which is written at its first use."""
        if value not in self.texts:
            self.record(CONTROL, TEXT)
            self.file.write(text(value))
            self.texts[value] = len(self.texts)
        return self.texts[value]

    def label(self, name, module, source, role, dtype, n_bytes, shape):
        label = name, module, source, role, dtype, n_bytes, shape
        if label not in self.labels:
            texts = [self.text(value) for value in (name, module, source)]
            # A dtype that the format lacks counts bytes.
            is_known = dtype in DTYPES and len(shape) <= MAX_RANK
            dtype, shape = (dtype, shape) if is_known else ("uint8", (n_bytes,))
            numbers = [*texts, ROLES.index(role), DTYPES.index(dtype), n_bytes, len(shape), *shape]
            self.record(CONTROL, LABEL, *numbers)
            self.labels[label] = len(self.labels)
        return self.labels[label]

    def alloc(self, block, *label):
        number = self.label(*label)
        self.event(ALLOC, number)
        self.blocks[block] = self.n_blocks
        self.n_blocks += 1

    def free(self, block):
        self.event(FREE, self.n_blocks - 1 - self.blocks.pop(block))

    def note(self, note):
        self.record(CONTROL, NOTE, self.text(note))

    def end(self):
        self.record(CONTROL, END, self.n_events)


def label_of(recorder, block, op, n_bytes):
    """Name, module, source, role, dtype, bytes and shape of a block."""
    info = recorder.infos[block]
    role, name = recorder.roles.get(block, ("logits_and_loss" if op.split(" ")[0] in LOSS else "activation", op))
    module = info.path
    if role in ("parameter", "gradient", "optimizer_state"):
        module = name.rpartition(".")[0]
    return name or op, module, info.source, role, info.dtype, n_bytes, info.shape


# Names that `--strip` writes instead: of the program, and of tensors by their role.
PROGRAM = "program"
NAMES = {
    "parameter": "parameter",
    "gradient": "parameter",
    "optimizer_state": "parameter",
    "cast_cache": "cast of parameter",
}


def stripped_label_of(recorder, block, op, n_bytes):
    """The same without names of parameters, modules and source lines."""
    _, _, _, role, dtype, n_bytes, shape = label_of(recorder, block, op, n_bytes)
    return NAMES.get(role, op), "", "", role, dtype, n_bytes, shape


def write(file, recorder, events, origin, steps, notes, label_of=label_of):
    """Writes the events of a recorder. `origin` has PyTorch's version and the program's name."""
    writer = Writer(file, *origin, recorder.gpu.capability, steps)
    for note in notes:
        writer.note(note)
    for event in events:
        kind, *rest = event
        if kind == "alloc":
            block, n_bytes, op, _ = rest
            writer.alloc(block, *label_of(recorder, block, op, n_bytes))
        elif kind == "free":
            writer.free(rest[0])
        elif kind == "mark":
            writer.event(CONTROL, MARK, MARKS.index(rest[0]))
        elif kind == "empty_cache":
            writer.event(CONTROL, EMPTY_CACHE)
        elif kind == "scratch":
            buffer = rest[0]
            kind, shapes = buffer if isinstance(buffer, hidden.Scratch) else ("bytes", (buffer,))
            writer.event(SCRATCH_RECORD, SCRATCH[kind], *shapes)
        elif kind == "end_of_operation":
            writer.event(CONTROL, END_OF_OPERATION)
        elif rest[0] == "cublas":
            writer.event(SCRATCH_RECORD, SCRATCH["cublas"])
        else:
            n_bytes = hidden.CUBLASLT_WORKSPACE
            writer.alloc(None, "cuBLASLt workspace", "", "", "workspace", "uint8", n_bytes, (n_bytes,))
    writer.end()
