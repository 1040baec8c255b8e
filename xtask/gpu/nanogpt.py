"""Times nanoGPT's training step on this machine's GPU, as in its train.py: bfloat16 under autocast, gradient clipping
and fused AdamW. Prints a JSON object.

    python3 nanogpt.py FOLDER eager|compile LAYERS HEADS CHANNELS TOKENS BATCH_SIZE WARM_UP TIMED

FOLDER is a checkout of nanoGPT, of which model.py is imported.
"""

import json
import sys
import time

folder, way = sys.argv[1:3]
n_layer, n_head, n_embd, block_size, batch_size, warm_up, timed = map(int, sys.argv[3:10])
sys.path.insert(0, folder)

import torch  # noqa: E402
from model import GPT, GPTConfig  # noqa: E402

VOCAB_SIZE = 50304  # nanoGPT's padded vocabulary, faster than 50257

torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
shape = dict(n_layer=n_layer, n_head=n_head, n_embd=n_embd, block_size=block_size, vocab_size=VOCAB_SIZE)
model = GPT(GPTConfig(dropout=0.0, bias=False, **shape)).to("cuda")
optimizer = model.configure_optimizers(1e-1, 6e-4, (0.9, 0.95), "cuda")
step_model = torch.compile(model) if way == "compile" else model


def batch():
    # train.py loads the next batch while the GPU computes.
    tokens = torch.randint(VOCAB_SIZE, (2, batch_size, block_size)).pin_memory()
    x, y = tokens.to("cuda", non_blocking=True)
    return x, y


def iteration(x, y):
    with torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16):
        _, loss = step_model(x, y)
    following = batch()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return following


x, y = batch()
for _ in range(warm_up):
    x, y = iteration(x, y)
torch.cuda.synchronize()
seconds = []
for _ in range(timed):
    start = time.perf_counter()
    x, y = iteration(x, y)
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - start)
median = sorted(seconds)[len(seconds) // 2]
found = dict(
    iteration_ms=median * 1e3,
    tokens_per_second=batch_size * block_size / median,
    allocated_bytes=torch.cuda.max_memory_allocated(),
    torch=torch.__version__,
)
print(json.dumps(found))
