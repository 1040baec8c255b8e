"""Writes the arguments of the rows to record: random runs of small models, the same for every call.

    python rows.py hf|flash_attn|nanochat FOLDER

About a quarter of the rows is held out: `KIND_held_out.jsonl`, beside `KIND_seen.jsonl`.
"""

import json
import os
import random
import sys

SEED = 21
FLASH_ATTN_SEED = 5
FAMILIES = ("llama", "qwen2", "qwen3", "gpt2", "gemma2", "gemma3", "mistral", "smollm3")
CLASSES = {
    "llama": "LlamaConfig",
    "qwen2": "Qwen2Config",
    "qwen3": "Qwen3Config",
    "gpt2": "GPT2Config",
    "gemma2": "Gemma2Config",
    "gemma3": "Gemma3TextConfig",
    "mistral": "MistralConfig",
    "smollm3": "SmolLM3Config",
}
OPTIMIZERS = ("adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "sgd", "adafactor")


def model(random, family):
    """The arguments of a config's class."""
    key_values = random.choice((1, 2, 3, 4))
    heads = key_values * random.choice((1, 2, 3))
    size = random.choice((32, 64, 64, 96, 128))
    hidden, layers = heads * size, random.randint(1, 4)
    vocabulary = random.choice((257, 1000, 5003, 32000, 50257, random.randint(300, 60000)))
    if family == "gpt2":
        drop = random.choice((0.0, 0.1))
        drops = dict(resid_pdrop=drop, embd_pdrop=drop, attn_pdrop=random.choice((0.0, drop)))
        sizes = dict(n_embd=hidden, n_layer=layers, n_head=heads, n_positions=random.choice((1024, 2048)))
        return dict(vocab_size=vocabulary, **sizes, **drops)
    config = dict(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=random.randint(hidden // 8, hidden // 2) * 8,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_values,
        max_position_embeddings=2048,
        tie_word_embeddings=random.random() < 0.5,
    )
    if family in ("qwen3", "gemma2", "gemma3"):
        config["head_dim"] = random.choice((size, 64, 128))
    if family in ("gemma2", "gemma3"):
        config.update(tie_word_embeddings=True, query_pre_attn_scalar=config["head_dim"])
    if family in ("gemma2", "gemma3", "mistral"):
        config["sliding_window"] = random.choice((64, 200, 4096))
    if family == "llama":
        config.update(attention_bias=random.random() < 0.2, mlp_bias=random.random() < 0.2)
    if family == "smollm3":
        config.update(pad_token_id=0)
    return config


def huggingface(random, at):
    family = FAMILIES[at % len(FAMILIES)]
    row = dict(kind="hf", capability=random.choice(("8.9", "8.9", "9.0")), family=family)
    row["class"] = CLASSES[family]
    row.update(config=model(random, family), batch=random.choice((1, 1, 2, 3, 4)))
    row["length"] = random.choice((64, 128, 250, 512, 1024, random.randint(17, 700)))
    precision = random.choice(("bf16", "bf16", "bf16", "fp16", "fp32", "half", "half"))
    if precision in ("bf16", "fp16"):
        row[precision] = True
    if precision == "half":
        row.update(weights="bfloat16", bf16=True)
    if random.random() < 0.25:
        row["attn"] = "eager"
    if random.random() < 0.4:
        row["gc"] = random.choice(("nonreentrant", "reentrant"))
    if random.random() < 0.3:
        row["accum"] = random.choice((2, 3))
    if random.random() < 0.25:
        row["evaluate"] = True
    if random.random() < 0.25:
        row["mask"] = True
    row["optim"] = random.choice(OPTIMIZERS)
    if random.random() < 0.4:
        projections = ["c_attn"] if family == "gpt2" else ["q_proj", "v_proj"]
        row["lora"] = dict(
            r=random.choice((4, 8, 16)),
            lora_alpha=16,
            lora_dropout=random.choice((0.0, 0.05)),
            target_modules=random.choice((projections, "all-linear")),
        )
    return row


def flash_attn(random, n):
    """Rows with the package flash-attn, which has no float32."""
    rows = [huggingface(random, at) for at in range(n)]
    for row in rows:
        row["attn"] = "flash_attention_2"
        if not any(key in row for key in ("bf16", "fp16", "weights")):
            row["bf16"] = True
    return rows


def nanochat(random, at):
    return dict(
        kind="nanochat",
        capability=random.choice(("8.9", "8.9", "9.0")),
        depth=random.randint(1, 6),
        aspect_ratio=random.choice((32, 48, 64, 64)),
        head_dim=random.choice((64, 128, 128)),
        max_seq_len=random.choice((128, 256, 384, 512, 1024)),
        device_batch_size=random.choice((1, 2, 3, 4, 8)),
        window_pattern=random.choice(("L", "SSSL", "SL", "SSL")),
        grad_accum_steps=random.choice((1, 1, 2, 3)),
        vocab_size=random.choice((32768, 32768, 8192, 65536)),
        compile=False,
        alloc_conf="",
    )


def main():
    kind, folder = sys.argv[1:]
    if kind == "flash_attn":
        with open(os.path.join(folder, "hf_flash_attn.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in flash_attn(random.Random(FLASH_ATTN_SEED), 20))
        return
    of, n = dict(hf=(huggingface, 80), nanochat=(nanochat, 48))[kind]
    source = random.Random(SEED)
    rows = [of(source, at) for at in range(n)]
    is_held_out = [source.random() < 0.25 for _ in rows]
    for name, held_out in (("seen", False), ("held_out", True)):
        with open(os.path.join(folder, f"{kind}_{name}.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row, is_out in zip(rows, is_held_out) if is_out == held_out)


if __name__ == "__main__":
    main()
