"""Memory that kernels allocate themselves, and that PyTorch's dispatcher does not show.

Each function has the arguments and the outputs of an operation, and returns buffers that live until the end of the
operation: those that the kernel allocates before its outputs, and those after them. A buffer is a number of bytes, or a
`Scratch`.

Source: PyTorch 2.11, the file that each function names under aten/src/ATen/native.
"""

from typing import NamedTuple

import torch

from .gpu import Gpu, elements



class Scratch(NamedTuple):
    """Buffers whose number depends on the shapes, or whose size depends on the GPU: a kind of `KINDS`, and its shapes."""

    kind: str
    shapes: tuple[int, ...]


# Outputs that a kernel allocates in another order than it returns them.
OUTPUT_ORDER = {
    "native_dropout": (1, 0),  # cuda/Dropout.cu
    "_scaled_dot_product_cudnn_attention": (6, 7, 0, 1),  # transformers/cuda/attention.cu
}
# Elements of a tensor that a block of a foreach kernel has.
CHUNK = 65536


def up(number, multiple):
    return -(-number // multiple) * multiple


def flash_backward(args, outputs):
    """transformers/cuda/flash_attn/flash_api.cpp: softmax_d, dq_accum, and dk and dv of each head of queries."""
    q, k = args[1], args[2]
    b, h, t, d = q.shape
    rows = b * h * up(t, 128)
    after = [rows * 4, rows * up(d, 32 if d <= 128 else 64) * 4]
    if k.shape[1] != h:
        after += [elements(q) * q.element_size()] * 2
    return [], after


def flash_splits(gpu: Gpu, heads, t, d):
    """`num_splits_heuristic` in transformers/cuda/flash_attn/flash_api.cpp: parts of the keys, if the blocks of the queries
    do not fill the GPU. `heads` are those of all sequences."""
    block = 256 if d <= 64 else 128 if d <= 128 else 64
    n_blocks, work, slots = up(t, block) // block, heads * up(t, 64) // 64, 2 * gpu.multiprocessors
    if work >= 0.8 * slots:
        return 1

    def is_eligible(n):
        return n == 1 or up(n_blocks, n) // n != up(n_blocks, n - 1) // (n - 1)

    def efficiency(n):
        waves = work * n / slots
        return waves / (up(work * n, slots) // slots) if is_eligible(n) else 0

    efficiencies = [efficiency(n) for n in range(1, min(128, slots, n_blocks) + 1)]
    best = max(efficiencies)
    return next(n for n, of_n in enumerate(efficiencies, 1) if of_n >= 0.85 * best and is_eligible(n))


def flash_forward(gpu: Gpu, heads, t, d):
    """transformers/cuda/flash_attn/flash_api.cpp: sums and outputs of each part of the keys."""
    splits = flash_splits(gpu, heads, t, d)
    rows = splits * heads * t
    return [rows * 4, rows * up(d, 32 if d <= 128 else 64) * 4] if splits > 1 else []


def efficient_backward(args, outputs):
    """transformers/cuda/attention_backward.cu: heads of all sequences, tokens, head size, half precision, one head."""
    q = args[1]
    b, h, t, d = q.shape
    is_half = q.dtype in (torch.float16, torch.bfloat16)
    return [], [Scratch("efficient_backward", (b * h, t, d, int(is_half), int(h == 1)))]


def efficient_backward_buffers(gpu: Gpu, heads, t, d, is_half, is_one_head):
    """The buffers for float32 and heads of up to 64: delta and its parts; the workspace."""
    blocks = up(t, 64) // 64 * (up(d, 64) // 64)
    workspace = heads * up(blocks * (4 + 64 * 64), 4) * 4
    return [heads * t * (d if is_one_head else 1) * 4, heads * t * 4, workspace]


def embedding_backward(args, outputs):
    """Indices, rows of the table, channels."""
    gradient, indices, vocabulary = args[:3]
    return [], [Scratch("embedding_backward", (elements(indices), vocabulary, gradient.shape[-1]))]


def embedding_backward_buffers(gpu: Gpu, n, vocabulary, channels):
    """cuda/Embedding.cu and cuda/EmbeddingBackwardKernel.cu: the sort and the sums of segments."""
    if n <= 3072:
        return []
    segments = min(n, vocabulary)
    sums = n // 10 + segments
    return [numbers * 8 for numbers in (n, n, n, 1, segments, segments, 1, sums)] + [sums * channels * 4]


def softmax_backward(args, outputs):
    """cuda/SoftMax.cu: the product of the gradient and the output."""
    return [], [elements(args[0]) * args[0].element_size()]


def reduction(args, outputs):
    """ReduceOps.cpp: a copy of integers in the dtype of their sum."""
    x, out = args[0], outputs[0]
    if x.dtype.is_floating_point or x.dtype == out.dtype:
        return [], []
    return [], [elements(x) * out.element_size()]


def row_sums(x, out):
    """The sum of the rows of a matrix. A reduction within rows has no buffers here."""
    columns = elements(out)
    rows = elements(x) // max(columns, 1)
    is_sum_of_rows = x.is_contiguous() and x.shape[-1] == out.shape[-1] and rows > 1
    return [Scratch("row_sums", (rows, columns))] if is_sum_of_rows else []


def partial_sums(gpu: Gpu, rows, columns):
    """`setReduceConfig` in cuda/Reduce.cuh: the sums of several blocks, and their semaphores."""
    vector = next(n for n in (4, 2, 1) if columns % n == 0)
    max_threads = 512 // vector

    def power_of_two(n):
        return 1 << (min(max(n, 1), max_threads).bit_length() - 1)

    width, height = power_of_two(columns // vector), power_of_two(rows)
    block_height = min(height, max_threads // min(width, 32))
    block_width = min(width, max_threads // block_height)
    values = up(rows, block_height) // block_height
    grid = up(columns // vector, block_width) // block_width
    target = gpu.multiprocessors * (gpu.threads_per_multiprocessor // (block_width * block_height))
    if rows < min(block_height * 16, 256) or values < 256 or grid > target:
        return []
    blocks = max(min(up(target, grid) // grid, up(values, 16) // 16), up(values, 256) // 256)
    return [columns * blocks * block_width * vector * 4, grid * 4] if blocks > 1 else []


def foreach_norm(args, outputs):
    """cuda/ForeachReduceOp.cu: the norms of chunks."""
    tensors = args[0]
    chunks = max(up(elements(x), CHUNK) // CHUNK for x in tensors)
    return [len(tensors) * chunks * 4], []


def safe_softmax(args, outputs):
    """SoftMax.cpp: masked entries, masked rows and a zero."""
    x = args[0]
    return [], [elements(x), elements(x) // x.shape[-1], 4]


def is_inf(args, outputs):
    """TensorCompare.cpp: the magnitudes."""
    return [elements(args[0]) * args[0].element_size()], []


HIDDEN = {
    "isinf": is_inf,
    "_scaled_dot_product_flash_attention_backward": flash_backward,
    "_scaled_dot_product_efficient_attention_backward": efficient_backward,
    "embedding_dense_backward": embedding_backward,
    "_softmax_backward_data": softmax_backward,
    "sum": reduction,
    "cumsum": reduction,
    "_foreach_norm": foreach_norm,
    "_safe_softmax": safe_softmax,
}
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot")


# Buffers of a `Scratch`, by its kind.
KINDS = {
    "flash_forward": flash_forward,
    "efficient_backward": efficient_backward_buffers,
    "row_sums": partial_sums,
    "embedding_backward": embedding_backward_buffers,
}


def sizes(gpu: Gpu, buffer) -> list[int]:
    """Bytes of what a kernel allocates for a buffer on a GPU."""
    return KINDS[buffer.kind](gpu, *buffer.shapes) if isinstance(buffer, Scratch) else [buffer]


def workspaces(name, args):
    """Libraries whose workspace a product takes from the handles of its thread."""
    if name not in PRODUCTS:
        return []
    return ["cublaslt"] * (name == "addmm" and takes_lt(*args[:3])) + ["cublas"]


# Bytes of the workspace of cuBLASLt in PyTorch.
CUBLASLT_WORKSPACE = 1 << 20


def takes_lt(bias, a, b):
    """`isInputCompliesAddmmCudaLt` in cuda/Blas.cpp."""
    return bias.dim() == 1 and bias.shape[0] == b.shape[1] and min(*a.shape, *b.shape) > 1 and bias.is_contiguous()


def cudnn_workspace(name, args):
    """Bytes of the workspace of cuDNN's attention, by measurement on an H200: its header, and in backward also its sums."""
    header = 256
    if name == "_scaled_dot_product_cudnn_attention":
        return header
    q, k = args[1], args[2]
    b, h, t, d = q.shape
    by_head = 0 if k.shape[1] == h else 2 * elements(q) * q.element_size()
    return header + b * h * t * (d + 1) * 4 + by_head


def buffers(name, args, outputs):
    """Buffers before and after the outputs."""
    if "cudnn_attention" in name:
        return [], [cudnn_workspace(name, args)]
    if name == "_scaled_dot_product_flash_attention":
        (b, h, t, d), dropout = args[0].shape, args[3]
        return [], [Scratch("flash_forward", (b * h, t, d))] if dropout == 0 else []
    before, after = HIDDEN[name](args, outputs) if name in HIDDEN else ([], [])
    if name in ("sum", "mean") and outputs[0].dim() > 0:
        after = after + row_sums(args[0], outputs[0])
    return before, after


def outputs_in_order(name, args, outputs):
    """The outputs that a kernel allocates, in the order of their allocation."""
    order = OUTPUT_ORDER.get(name)
    if not order:
        return outputs
    ordered = [outputs[at] for at in order if isinstance(outputs[at], torch.Tensor)]
    if "cudnn" in name and not args[4]:
        # Without backward, no logsumexp.
        ordered.pop()
    return ordered
