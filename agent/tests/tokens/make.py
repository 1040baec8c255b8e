"""Writes gpt2.json: texts and their GPT-2 token IDs, from Hugging Face's `tokenizers` with GPT-2's own files.

    python make.py encoder.json vocab.bpe > gpt2.json
"""

import json
import random
import sys

from tokenizers import ByteLevelBPETokenizer

TEXTS = [
    "Hello, world!",
    "Once upon a time, there was a little mouse named Pip.",
    "I'll say it's what they've done; we're sure he'd agree, I'm not. 'Tis DON'T 'S",
    "   three blanks,  two\n\n\nlines\t\ttabs \r\n and \n an end \n",
    "1 12 123 1234 3.14159 1,000,000 ½ ² Ⅷ",
    "naïve café Zürich straße Ёлки 世界、こんにちは 안녕 مرحبا",
    "🦀👩‍👩‍👧‍👦🇩🇪",
    "def f(x):\n    return x**2  # ok\n\n\nclass A:\n\tpass\n",
    "<|endoftext|>",
    "\u00a0\u2003\u3000x\u200b \ufeffy\x1f\x85z",
    "",
    " ",
    "\n",
    "a" * 300,
    "=" * 200 + " " + "-" * 77,
]


def random_texts():
    rng = random.Random(1)
    pieces = ["the", " The", "'s", "'", " ", "  ", "\n", "\t", ".", ",", "é", "世", "🦀", "7", "42", "Z", "_", "\u00a0", "ing", '"', "\r\n"]
    for _ in range(40):
        yield "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 40)))


def main():
    tokenizer = ByteLevelBPETokenizer(sys.argv[1], sys.argv[2])
    rows = [[text, tokenizer.encode(text).ids] for text in [*TEXTS, *random_texts()]]
    print("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]")


main()
