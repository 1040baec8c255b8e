"""The package flash-attn 2.8.3 without its kernels: the tensors that its functions allocate, in order.

Source: flash_attn/flash_attn_interface.py and csrc/flash_attn/flash_api.cpp of Dao-AILab/flash-attention at v2.8.3.
transformers looks for the package, so `patch` replaces the search.
"""

import torch


def up(number, multiple):
    return -(-number // multiple) * multiple


def n_splits(gpu, q, dropout):
    """`num_splits_heuristic`, whose result exceeds one for small batches without dropout."""
    b, t, h, d = q.shape
    multiprocessors, blocks = 2 * gpu.multiprocessors, b * h * up(t, 64) // 64
    if dropout > 0 or blocks >= 0.8 * multiprocessors:
        return 1
    key_blocks = -(-t // (256 if d <= 64 else 128 if d <= 128 else 64))
    most = min(128, multiprocessors, key_blocks)

    def efficiency(splits):
        waves = blocks * splits / multiprocessors
        return waves / -(-blocks * splits // multiprocessors)

    def is_new(splits):
        return splits == 1 or -(-key_blocks // splits) != -(-key_blocks // (splits - 1))

    best = max((efficiency(splits) for splits in range(1, most + 1) if is_new(splits)), default=0)
    return next((s for s in range(1, most + 1) if is_new(s) and efficiency(s) >= 0.85 * best), 1)


def function(gpu):
    """`FlashAttnFunc` for a GPU."""

    class FlashAttnFunc(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, dropout):
            b, t, h, d = q.shape
            assert d % 8 == 0 and q.dtype in (torch.float16, torch.bfloat16)
            out = torch.empty_like(q)
            softmax_lse = q.new_empty((b, h, t), dtype=torch.float32)
            splits = n_splits(gpu, q, dropout)
            if splits > 1:
                rows = (splits, b, h, t)
                parts = [q.new_empty(rows, dtype=torch.float32)]
                parts.append(q.new_empty((*rows, up(d, 32 if d <= 128 else 64)), dtype=torch.float32))
            rng_state = q.new_empty((2,), dtype=torch.int64)
            ctx.save_for_backward(q, k, v, out, softmax_lse, rng_state)
            return out

        @staticmethod
        def backward(ctx, dout):
            q, k, v, out, softmax_lse, rng_state = ctx.saved_tensors
            dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
            scratch(dout, q, k)
            return dq, dk, dv, None

    def scratch(dout, q, k):
        b, t, h, d = q.shape
        softmax_d = q.new_empty((b, h, up(t, 128)), dtype=torch.float32)
        dq_accum = q.new_empty((b, up(t, 128), h, up(d, 32 if d <= 128 else 64)), dtype=torch.float32)
        if k.shape[2] != h:
            dk_expanded = q.new_empty((b, t, h, d))
            dv_expanded = q.new_empty((b, t, h, d))

    return FlashAttnFunc


def patch(gpu):
    """Makes transformers use the functions."""
    from transformers import modeling_flash_attention_utils as utils
    from transformers import modeling_utils
    from transformers.modeling_utils import PreTrainedModel

    apply = function(gpu).apply

    def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                        alibi_slopes=None, deterministic=False, return_attn_probs=False):
        return apply(q, k, v, dropout_p)

    process = utils._lazy_define_process_function(flash_attn_func)
    functions = (flash_attn_func, None, None, None, None), process
    for module in (utils, modeling_utils):
        module.lazy_import_flash_attention = lambda *args, **kwargs: functions
    PreTrainedModel._flash_attn_can_dispatch = lambda self, *args, **kwargs: True
