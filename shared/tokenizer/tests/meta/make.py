"""Writes meta.pkl as nanoGPT's prepare.py does, in every protocol, and has Python read the file that Headroom wrote.

    python make.py

`ours.pkl` is what `Meta::of_chars` makes of the same text; a test holds it against the code.
"""

import pathlib
import pickle

TEXT = "Hello, Wörld! 世界 🦀\n\t'\"\\\x1a\x00\r"
HERE = pathlib.Path(__file__).parent

chars = sorted(list(set(TEXT)))
stoi = {ch: i for i, ch in enumerate(chars)}
itos = {i: ch for i, ch in enumerate(chars)}
meta = {"vocab_size": len(chars), "itos": itos, "stoi": stoi}
for protocol in range(6):
    (HERE / f"protocol_{protocol}.pkl").write_bytes(pickle.dumps(meta, protocol=protocol))

ours = HERE / "ours.pkl"
if ours.exists():
    read = pickle.loads(ours.read_bytes())
    assert read == meta and list(read) == list(meta), read
    assert list(read["itos"].items()) == list(itos.items()) and list(read["stoi"].items()) == list(stoi.items())
    print("Python reads ours.pkl")
