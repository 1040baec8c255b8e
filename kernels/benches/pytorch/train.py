"""Times the shapes of benches/train.rs with PyTorch in eager mode and with Headroom's trainer, and prints the ratio.

    pip install torch==2.11.0 numpy
    python kernels/benches/pytorch/train.py [small|medium|gpt2 ...] [--threads 2] [--rounds 5]

Each round runs PyTorch, then `cargo bench`'s program, on the same cores. Ratios are of medians over the rounds. The
model is nanoGPT's GPT-2 without biases: scaled_dot_product_attention, exact GELU, a tied head, AdamW, and gradients
clipped to 1.
"""
import argparse, json, os, statistics, subprocess, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("cases", nargs="*", default=[])
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--rounds", type=int, default=5)
args = parser.parse_args()
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(args.threads)
CASES = {"small": (4, 4, 128, 64, 65, 12, 60), "medium": (6, 6, 384, 256, 65, 16, 3), "gpt2": (12, 12, 768, 256, 50304, 2, 3)}


class Block(nn.Module):
    def __init__(self, c, nh):
        super().__init__()
        self.nh = nh
        self.ln_1, self.ln_2 = nn.LayerNorm(c, bias=False), nn.LayerNorm(c, bias=False)
        self.attn, self.attn_out = nn.Linear(c, 3 * c, bias=False), nn.Linear(c, c, bias=False)
        self.fc, self.fc_out = nn.Linear(c, 4 * c, bias=False), nn.Linear(4 * c, c, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.nh, c // self.nh).transpose(1, 2) for y in self.attn(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_out(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.fc_out(F.gelu(self.fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, l, nh, c, t, v):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(v, c), nn.Embedding(t, c)
        self.blocks, self.ln_f = nn.ModuleList(Block(c, nh) for _ in range(l)), nn.LayerNorm(c, bias=False)
        self.head = nn.Linear(c, v, bias=False)
        self.head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.ln_f(h))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))


def pytorch(case):
    l, nh, c, t, v, b, steps = CASES[case]
    torch.manual_seed(1337)
    model = Gpt(l, nh, c, t, v)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    x, y = torch.randint(v, (b, t)), torch.randint(v, (b, t))
    seconds = []
    for step in range(steps + 1):
        start = time.perf_counter()
        loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    side = torch.full((1024, 1024), 0.5)
    rates = []
    for _ in range(20):
        start = time.perf_counter()
        side @ side
        rates.append(2 * 1024**3 / (time.perf_counter() - start))
    return b * t / statistics.median(seconds[1:]), b * t / min(seconds[1:]), max(rates) / 1e9


def ours(case):
    out = subprocess.run([program, case, "--threads", str(args.threads)], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)["figures"]


build = ["cargo", "bench", "-p", "headroom-kernels", "--features", "train", "--bench", "train", "--no-run", "--message-format=json"]
messages = subprocess.run(build, capture_output=True, text=True, check=True).stdout.splitlines()
program = [m["executable"] for m in map(json.loads, messages) if m.get("executable")][-1]
for case in args.cases or CASES:
    rounds = [(pytorch(case), ours(case)) for _ in range(args.rounds)]
    torch_median = statistics.median(r[0][0] for r in rounds)
    our_median = statistics.median(r[1]["tokens_per_second"] for r in rounds)
    torch_best, our_best = max(r[0][1] for r in rounds), max(r[1]["best_tokens_per_second"] for r in rounds)
    print(json.dumps({
        "case": case, "threads": args.threads, "torch": torch.__version__,
        "torch_tokens_per_second": round(torch_median), "tokens_per_second": round(our_median),
        "ratio": round(our_median / torch_median, 3), "ratio_of_bests": round(our_best / torch_best, 3),
        "fraction_of_gemm": statistics.median(r[1]["fraction_of_gemm"] for r in rounds),
        "best_fraction_of_best_gemm": max(r[1]["best_fraction_of_best_gemm"] for r in rounds),
        "gemm_gflops": statistics.median(r[1]["gemm_gflops"] for r in rounds),
        "torch_gemm_gflops": round(statistics.median(r[0][2] for r in rounds), 1),
    }), flush=True)
