"""nanochat's `scripts/base_train.py` without compilation, as tests/golden/measured/models/measure.py runs it on a GPU."""

import gc

import torch


def train(row, recorder):
    """Runs the training of a row, and marks the ends of its phases. Returns what belongs into the row besides its arguments."""
    mark = recorder.mark
    # The optimizer's kernels are compiled, update in place and return nothing. Their buffers are not recorded.
    torch.compile = lambda **settings: lambda function: lambda *args: None
    from nanochat import flash_attention
    from nanochat.gpt import GPT, GPTConfig
    from nanochat.loss_eval import evaluate_bpb

    device = torch.device("cuda")
    batch, length, vocabulary = row["device_batch_size"], row["max_seq_len"], row["vocab_size"]
    head = row["head_dim"]
    torch.zeros(1, device=device)
    token_bytes = torch.ones(vocabulary, dtype=torch.int32, device=device)
    width = -(-row["depth"] * row["aspect_ratio"] // head) * head
    mark("context")
    with torch.device("meta"):
        config = GPTConfig(
            sequence_len=length,
            vocab_size=vocabulary,
            n_layer=row["depth"],
            n_head=width // head,
            n_kv_head=width // head,
            n_embd=width,
            window_pattern=row["window_pattern"],
        )
        model = GPT(config)
    model.to_empty(device=device)
    model.init_weights()
    mark("init")
    optimizer = model.setup_optimizer()

    def loader():
        n = batch * length
        on_cpu = torch.empty(2 * n, dtype=torch.long)
        on_gpu = torch.empty(2 * n, dtype=torch.long, device=device)
        x, y = on_gpu[:n].view(batch, length), on_gpu[n:].view(batch, length)
        while True:
            on_cpu.copy_(torch.randint(vocabulary, (2 * n,)))
            on_gpu.copy_(on_cpu, non_blocking=True)
            yield x, y

    batches = loader()
    x, y = next(batches)
    model.eval()
    validation = loader()
    evaluate_bpb(model, validation, 2, token_bytes)
    model.train()
    mark("eval")
    for step in range(3):
        for micro_step in range(row["grad_accum_steps"]):
            loss = model(x, y)
            train_loss = loss.detach()
            loss = loss / row["grad_accum_steps"]
            if step == 0 and micro_step == 0:
                mark("first_forward")
            loss.backward()
            x, y = next(batches)
        mark(f"step{step}_backward")
        optimizer.step()
        model.zero_grad(set_to_none=True)
        train_loss.item()
        mark(f"step{step}_optimizer")
        if step == 0:
            gc.collect()
    return dict(fa3=bool(flash_attention.USE_FA3))
