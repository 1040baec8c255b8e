"""Makes pytorch_gpt.json: one tiny GPT-2 in PyTorch, its logits, loss, every gradient, and two steps of AdamW.

    pip install torch==2.11.0 numpy && python make.py > pytorch_gpt.json

In float64 on the CPU, so that the figures are PyTorch's definition and not its rounding. Weights and tokens come from
torch's own generator and are in the file, so that nothing has to be generated again.
"""
import json

import torch
import torch.nn.functional as F

torch.manual_seed(1337)
torch.set_default_dtype(torch.float64)
L, NH, C, T, V, B = 2, 2, 8, 5, 11, 2


def matrix(*shape):
    return (torch.randn(*shape) * 0.3).requires_grad_()


params = {"transformer.wte.weight": matrix(V, C), "transformer.wpe.weight": matrix(T, C)}
for i in range(L):
    h = f"transformer.h.{i}."
    for name, shape in [
        ("ln_1.weight", (C,)), ("ln_1.bias", (C,)),
        ("attn.c_attn.weight", (3 * C, C)), ("attn.c_attn.bias", (3 * C,)),
        ("attn.c_proj.weight", (C, C)), ("attn.c_proj.bias", (C,)),
        ("ln_2.weight", (C,)), ("ln_2.bias", (C,)),
        ("mlp.c_fc.weight", (4 * C, C)), ("mlp.c_fc.bias", (4 * C,)),
        ("mlp.c_proj.weight", (C, 4 * C)), ("mlp.c_proj.bias", (C,)),
    ]:
        params[h + name] = matrix(*shape)
params["transformer.ln_f.weight"], params["transformer.ln_f.bias"] = matrix(C), matrix(C)
tokens = torch.randint(V, (B, T + 1))
x, y = tokens[:, :-1], tokens[:, 1:]


def forward():
    p = params
    h = p["transformer.wte.weight"][x] + p["transformer.wpe.weight"][torch.arange(T)]
    for i in range(L):
        w = {k[len(f"transformer.h.{i}."):]: v for k, v in p.items() if k.startswith(f"transformer.h.{i}.")}
        n = F.layer_norm(h, (C,), w["ln_1.weight"], w["ln_1.bias"])
        qkv = F.linear(n, w["attn.c_attn.weight"], w["attn.c_attn.bias"])
        q, k, v = (t.view(B, T, NH, C // NH).transpose(1, 2) for t in qkv.split(C, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        h = h + F.linear(a, w["attn.c_proj.weight"], w["attn.c_proj.bias"])
        n = F.layer_norm(h, (C,), w["ln_2.weight"], w["ln_2.bias"])
        m = F.gelu(F.linear(n, w["mlp.c_fc.weight"], w["mlp.c_fc.bias"]))
        h = h + F.linear(m, w["mlp.c_proj.weight"], w["mlp.c_proj.bias"])
    h = F.layer_norm(h, (C,), p["transformer.ln_f.weight"], p["transformer.ln_f.bias"])
    logits = F.linear(h, p["transformer.wte.weight"])
    return logits, F.cross_entropy(logits.view(-1, V), y.reshape(-1))


flat = lambda t: [float(f"{v:.12g}") for v in t.detach().reshape(-1).tolist()]
before = {k: flat(v) for k, v in params.items()}
decayed = [v for v in params.values() if v.dim() > 1]
vectors = [v for v in params.values() if v.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95), eps=1e-4)
steps = []
for step in range(2):
    optimizer.zero_grad()
    logits, loss = forward()
    loss.backward()
    grads = {k: flat(v.grad) for k, v in params.items()}
    norm = torch.nn.utils.clip_grad_norm_(params.values(), 0.5).item()
    optimizer.step()
    steps.append({"loss": loss.item(), "norm": norm, "logits": flat(logits), "grads": grads if step == 0 else None})
print(json.dumps({
    "torch": torch.__version__, "n_layer": L, "n_head": NH, "n_embd": C, "block_size": T, "vocab_size": V,
    "x": x.reshape(-1).tolist(), "y": y.reshape(-1).tolist(), "params": before, "steps": steps,
    "after": {k: flat(v) for k, v in params.items()},
}))
