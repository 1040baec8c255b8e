"""`scaled_dot_product_attention` by the rules of PyTorch 2.11, which asks the GPU which kernel to use.

Source: aten/src/ATen/native/transformers/attention.cpp and cuda/sdp_utils.cpp.
"""

import math

import torch
import torch.nn.functional as F

from .gpu import Gpu

aten = torch.ops.aten
HALF = (torch.bfloat16, torch.float16)
# Architectures whose flash backward needs too much shared memory for wide heads.
SMALL = ((8, 6), (8, 9), (12, 0), (12, 1))


def kernel(gpu: Gpu, q, k, v, mask, dropout, trains) -> str:
    """The kernel that `_fused_sdp_choice_cuda` selects."""
    size = q.shape[-1]
    is_half = q.dtype in HALF
    has_one_size = k.shape[-1] == size == v.shape[-1]
    widest_of_cudnn = {9: 256, 10: 128}.get(gpu.capability[0], 0)
    if is_half and size % 8 == 0 and size <= widest_of_cudnn and has_one_size:
        return "cudnn"
    is_too_wide = gpu.capability in SMALL and trains and (192 < size <= 224 or size > 224 and dropout > 0)
    if is_half and not isinstance(mask, torch.Tensor) and has_one_size and size <= 256 and not is_too_wide:
        return "flash"
    alignment = 8 if is_half else 4
    if size % alignment == 0 and v.shape[-1] % alignment == 0 and q.shape[1] == k.shape[1]:
        return "efficient"
    return "math"


def additive_mask(mask, dtype):
    """`convert_boolean_attn_mask`."""
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
        return mask
    values = torch.zeros((), dtype=dtype, device="cuda"), torch.full((), -math.inf, dtype=dtype, device="cuda")
    return torch.where(mask, *values)


def padded_mask(mask, q, k):
    """`preprocess_mask`: rows of the mask start at multiples of 8 elements."""
    alignment, columns = 8, mask.shape[-1]
    if any(stride % alignment for stride in mask.stride()[:-1]):
        mask = F.pad(mask, (0, alignment - columns % alignment))[..., :columns]
    return mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])


def attention(gpu: Gpu):
    """The function for a GPU."""

    def run(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        q, k, v, mask = query, key, value, attn_mask
        if q.device.type != "cuda":
            call = aten._scaled_dot_product_attention_math
            return call(q, k, v, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            floats = (torch.float32, *HALF)
            # Arguments are cast from the last to the first.
            v, k, q = (x.to(dtype) if x.dtype in floats else x for x in (v, k, q))
        trains = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
        choice = kernel(gpu, q, k, v, mask, dropout_p, trains)
        if choice == "math":
            with torch.autocast("cuda", enabled=False):
                call = aten._scaled_dot_product_attention_math
                return call(q, k, v, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
        size = q.shape[-1]
        scale = scale or 1 / math.sqrt(size)
        if choice == "flash":
            if size % 8:
                q, k, v = (F.pad(x, (0, 8 - size % 8)) for x in (q, k, v))
            out = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
            return out[..., :size] if size % 8 else out
        mask = additive_mask(mask, q.dtype)
        if choice == "cudnn":
            call = aten._scaled_dot_product_cudnn_attention
            return call(q, k, v, mask, trains, dropout_p, is_causal, False, scale=scale)[0]
        mask = padded_mask(mask, q, k) if mask is not None else None
        call = aten._scaled_dot_product_efficient_attention
        return call(q, k, v, mask, trains, dropout_p, is_causal, scale=scale)[0]

    return run


def patch(gpu: Gpu):
    """Replaces the function by attribute: a mode would be missing in autograd's threads, where checkpoints recompute."""
    F.scaled_dot_product_attention = torch._C._nn.scaled_dot_product_attention = attention(gpu)
