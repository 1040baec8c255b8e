"""Measures nanochat and Hugging Face training on a CUDA GPU: prints a JSON object after RESULT.

    python3 measure.py ROW OUT_DIR

ROW is a JSON object: `kind` (nanochat, hf or nanogpt_snapshot) and its arguments, as in a line of the files. A `snapshot` in it
names the file of OUT_DIR for PyTorch's memory snapshot. The script expects the folders `nanochat` (its Python package)
and `nanogpt` (model.py) in its own directory.
"""
import json, os, sys, time
cfg = json.loads(sys.argv[1]); out_dir = sys.argv[2]
here = os.path.dirname(os.path.abspath(__file__))
if cfg.get("alloc_conf"):
    os.environ["PYTORCH_ALLOC_CONF"] = cfg["alloc_conf"]
sys.path.insert(0, here)
import torch
out = dict(cfg, torch=torch.__version__, device=torch.cuda.get_device_name(0), capability="%d.%d" % torch.cuda.get_device_capability(0), phases=[])
seen = dict(a=0, r=0)
def mark(name):
    torch.cuda.synchronize()
    a, r = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    seen["a"], seen["r"] = max(seen["a"], a), max(seen["r"], r)
    out["phases"].append(dict(name=name, phase_peak_allocated=a, max_memory_allocated=seen["a"], max_memory_reserved=seen["r"],
        allocated_now=torch.cuda.memory_allocated(), reserved_now=torch.cuda.memory_reserved()))
    torch.cuda.reset_peak_memory_stats()
def record():
    if cfg.get("snapshot"):
        torch.cuda.memory._record_memory_history(max_entries=200000, stacks="python")
def dump():
    if cfg.get("snapshot"):
        import pickle, gzip
        s = torch.cuda.memory._snapshot()
        p = os.path.join(out_dir, cfg["snapshot"] + ".pickle.gz")
        with gzip.open(p, "wb", 9) as f: pickle.dump(s, f)
        out["snapshot_bytes"] = os.path.getsize(p)

def nanochat():
    from nanochat.gpt import GPT, GPTConfig
    from nanochat import flash_attention
    from nanochat.loss_eval import evaluate_bpb
    import gc
    dev = torch.device("cuda")
    torch.manual_seed(42); torch.cuda.manual_seed(42)
    torch.set_float32_matmul_precision("high")
    out["fa3"] = bool(flash_attention.USE_FA3)
    V, B, T, depth, hd = cfg["vocab_size"], cfg["device_batch_size"], cfg["max_seq_len"], cfg["depth"], cfg["head_dim"]
    token_bytes = torch.ones(V, dtype=torch.int32, device=dev)
    dim = ((depth * cfg["aspect_ratio"] + hd - 1) // hd) * hd
    mark("context")
    with torch.device("meta"):
        model = GPT(GPTConfig(sequence_len=T, vocab_size=V, n_layer=depth, n_head=dim // hd, n_kv_head=dim // hd, n_embd=dim, window_pattern=cfg["window_pattern"]))
    model.to_empty(device=dev); model.init_weights()
    mark("init")
    if cfg["compile"]: model = torch.compile(model, dynamic=False)
    opt = model.setup_optimizer()
    def loader():
        cpu = torch.empty(2 * B * T, dtype=torch.long, pin_memory=True); gpu = torch.empty(2 * B * T, dtype=torch.long, device="cuda")
        x, y = gpu[:B * T].view(B, T), gpu[B * T:].view(B, T)
        while True:
            cpu.copy_(torch.randint(V, (2 * B * T,))); gpu.copy_(cpu, non_blocking=True)
            yield x, y
    train = loader(); x, y = next(train)
    record()
    model.eval(); val = loader(); evaluate_bpb(model, val, 2, token_bytes); model.train()
    mark("eval")
    n = cfg["grad_accum_steps"]
    for step in range(3):
        for micro in range(n):
            loss = model(x, y); train_loss = loss.detach(); loss = loss / n
            if step == 0 and micro == 0: mark("first_forward")
            loss.backward(); x, y = next(train)
        mark("step%d_backward" % step)
        opt.step(); model.zero_grad(set_to_none=True); train_loss.item()
        mark("step%d_optimizer" % step)
        if step == 0: gc.collect()
    if cfg.get("timed"):
        ts = []
        for _ in range(cfg["timed"]):
            torch.cuda.synchronize(); t = time.perf_counter()
            for micro in range(n):
                loss = model(x, y); train_loss = loss.detach(); loss = loss / n; loss.backward(); x, y = next(train)
            opt.step(); model.zero_grad(set_to_none=True); train_loss.item(); torch.cuda.synchronize()
            ts.append(time.perf_counter() - t)
        out["step_seconds_median"] = sorted(ts)[len(ts) // 2]
    dump()

SHAPES = {
    "Qwen2.5-0.5B": ("Qwen2Config", dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=32768, rope_theta=1e6, tie_word_embeddings=True)),
    "Qwen3-0.6B": ("Qwen3Config", dict(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, tie_word_embeddings=True)),
    "TinyLlama-1.1B": ("LlamaConfig", dict(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4, max_position_embeddings=2048, tie_word_embeddings=False)),
    "SmolLM2-135M": ("LlamaConfig", dict(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True)),
    "gpt2": ("GPT2Config", dict()),
    "gemma-3-270m": ("Gemma3TextConfig", dict(vocab_size=262144, hidden_size=640, intermediate_size=2048, num_hidden_layers=18, num_attention_heads=4, num_key_value_heads=1, head_dim=256, max_position_embeddings=32768, sliding_window=512)),
}
def hf():
    import transformers
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, TrainerCallback
    out["transformers"] = transformers.__version__
    name, kw = SHAPES[cfg["model"]]
    c = getattr(transformers, name)(**kw)
    c._attn_implementation = cfg.get("attn", "sdpa")
    out["config"] = {k: v for k, v in c.to_dict().items() if isinstance(v, (int, float, str, bool, list))}
    torch.manual_seed(1)
    mark("context")
    dtype = getattr(torch, cfg.get("weights", "float32"))
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(c, dtype=dtype, attn_implementation=cfg.get("attn", "sdpa"))
    model.config.use_cache = False
    mark("init")
    if cfg.get("lora"):
        import peft; from peft import LoraConfig, get_peft_model
        out["peft"] = peft.__version__
        if cfg.get("gc"): model.enable_input_require_grads()
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **cfg["lora"]))
        mark("lora")
    B, T, V = cfg["batch"], cfg["length"], c.vocab_size
    class Data(torch.utils.data.Dataset):
        def __len__(self): return 4096
        def __getitem__(self, i):
            x = torch.randint(V, (T,)); return dict(input_ids=x, labels=x.clone(), attention_mask=torch.ones(T, dtype=torch.long)) if cfg.get("mask") else dict(input_ids=x, labels=x.clone())
    class Marks(TrainerCallback):
        def on_train_begin(self, *a, **k): mark("train_begin"); record()
        def on_substep_end(self, *a, **k): mark("substep")
        def on_pre_optimizer_step(self, *a, **k): mark("backward")
        def on_optimizer_step(self, *a, **k): mark("optimizer")
        def on_step_end(self, *a, **k): mark("step_end")
        def on_evaluate(self, *a, **k): mark("evaluate")
    args = dict(output_dir="/tmp/hf-%d" % os.getpid(), max_steps=3, per_device_train_batch_size=B, per_device_eval_batch_size=B, report_to=[], save_strategy="no", logging_strategy="no",
        dataloader_pin_memory=True, gradient_accumulation_steps=cfg.get("accum", 1), bf16=cfg.get("bf16", False), fp16=cfg.get("fp16", False), optim=cfg.get("optim", "adamw_torch_fused"),
        gradient_checkpointing=bool(cfg.get("gc")), disable_tqdm=True)
    if cfg.get("gc"): args["gradient_checkpointing_kwargs"] = dict(use_reentrant=cfg["gc"] == "reentrant")
    tr = Trainer(model=model, args=TrainingArguments(**args), train_dataset=Data(), eval_dataset=torch.utils.data.Subset(Data(), range(2 * B)), callbacks=[Marks()])
    tr.train()
    mark("trained")
    if cfg.get("evaluate"): tr.evaluate(); mark("evaluated")
    dump()

def nanogpt_snapshot():
    from pathlib import Path
    sys.path.insert(0, os.path.join(here, "nanogpt"))
    from model import GPT, GPTConfig
    B, T, V = cfg["batch_size"], cfg["block_size"], cfg["vocab_size"]
    record()
    torch.manual_seed(1337)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model = GPT(GPTConfig(block_size=T, vocab_size=V, n_layer=cfg["n_layer"], n_head=cfg["n_head"], n_embd=cfg["n_embd"], dropout=cfg["dropout"], bias=cfg["bias"])).to("cuda")
    opt = model.configure_optimizers(1e-1, 6e-4, (0.9, 0.95), "cuda")
    ctx = torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16)
    if cfg.get("compile"): model = torch.compile(model)
    X, Y = (torch.randint(V, (B, T)).pin_memory().to("cuda", non_blocking=True) for _ in range(2))
    try:
        for _ in range(cfg["iters"]):
            with ctx: logits, loss = model(X, Y)
            X, Y = (torch.randint(V, (B, T)).pin_memory().to("cuda", non_blocking=True) for _ in range(2))
            loss.backward(); torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0); opt.step(); opt.zero_grad(set_to_none=True)
            mark("iteration")
    except torch.OutOfMemoryError as e:
        out["oom"] = str(e)
    dump()

t = time.time()
try:
    if cfg.get("cap_gib"):
        torch.cuda.set_per_process_memory_fraction(cfg["cap_gib"] * 2**30 / torch.cuda.get_device_properties(0).total_memory)
    torch.zeros(1, device="cuda")
    dict(nanochat=nanochat, hf=hf, nanogpt_snapshot=nanogpt_snapshot)[cfg["kind"]]()
except torch.OutOfMemoryError as e:
    out["oom"] = str(e); mark("oom")
except BaseException as e:
    import traceback; out["error"] = traceback.format_exc()[-3000:]
out["seconds"] = round(time.time() - t, 1)
print("RESULT " + json.dumps(out))
