"""Logits of Hugging Face's GPT2LMHeadModel for the folders that `headroom export --format hf` wrote.

python logits.py FOLDER > logits.json
"""

import json
import pathlib
import sys
import zlib

import torch
import transformers

TOKENS = [18, 47, 56, 57, 58, 1, 15, 47, 58, 47, 64, 0, 43]
TEXT = "First Citizen:\nBefore we proceed"


def model(folder):
    gpt, loading = transformers.GPT2LMHeadModel.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    for key, what in loading.items():
        assert not what, f"{folder}: {key} {what}"
    gpt.eval()
    with torch.no_grad():
        logits = gpt(torch.tensor([TOKENS])).logits[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT, (ids, tokenizer.decode(ids))
    return {
        "crc32": {file.name: zlib.crc32(file.read_bytes()) for file in sorted(folder.iterdir())},
        "tokens": TOKENS,
        "text_tokens": ids,
        "logits": [float(f"{logit:.9g}") for logit in logits.flatten().tolist()],
    }


root = pathlib.Path(sys.argv[1])
models = {folder.name: model(folder / "hf") for folder in sorted(root.iterdir())}
json.dump({"torch": torch.__version__, "transformers": transformers.__version__, "models": models}, sys.stdout)
print()
