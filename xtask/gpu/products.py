"""Measures PyTorch's rate of bfloat16 matrix products (cuBLASLt) of random numbers on this machine's GPU. The rate is
the upper bound of a trainer's products. Prints a JSON object."""

import json

import torch

ROUNDS = 30
best = dict(operations_per_second=0.0)
# A square, and the products of GPT-2 124M's training with 64 sequences.
for m, k, n in [(8192, 8192, 8192), (65536, 768, 3072), (65536, 3072, 768), (65536, 768, 2304), (8192, 768, 50304)]:
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
    for _ in range(5):
        a @ b
    times = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        a @ b
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    rate = 2.0 * m * k * n / sorted(times)[ROUNDS // 2]
    if rate > best["operations_per_second"]:
        best = dict(operations_per_second=rate, m=m, k=k, n=n, torch=torch.__version__)
    del a, b
print(json.dumps(best))
