"""What nanoGPT makes of a ckpt.pt: python facts.py NANOGPT_FOLDER CKPT.pt PROMPT_TOKENS > facts.json"""
import json, sys, zlib

sys.path.insert(0, sys.argv[1])
import torch
from model import GPT, GPTConfig

# As train.py resumes: with PyTorch's default, which unpickles tensors and plain values only.
checkpoint = torch.load(sys.argv[2], map_location="cpu")
model = GPT(GPTConfig(**checkpoint["model_args"]))
model.load_state_dict(checkpoint["model"])
config = checkpoint["config"]
betas = (config.get("beta1", 0.9), config.get("beta2", 0.95))
optimizer = model.configure_optimizers(config.get("weight_decay", 0.1), config.get("learning_rate", 6e-4), betas, "cpu")
optimizer.load_state_dict(checkpoint["optimizer"])


def weighted(tensor):
    flat = tensor.detach().double().flatten()
    return float((flat * (torch.arange(len(flat)) % 97 + 1)).sum())


sums = {}
steps = set()
for name, parameter in model.named_parameters():
    state = optimizer.state[parameter]
    sums[name] = [weighted(t) for t in (parameter, state["exp_avg"], state["exp_avg_sq"])]
    steps.add(float(state["step"]))
model.eval()
tokens = [int(token) for token in sys.argv[3].split(",")]
written = model.generate(torch.tensor([tokens]), 24, temperature=1.0, top_k=1)[0].tolist()
json.dump(
    {
        "torch": torch.__version__,
        "crc32": zlib.crc32(open(sys.argv[2], "rb").read()),
        "iter_num": checkpoint["iter_num"],
        "best_val_loss": float(checkpoint["best_val_loss"]),
        "steps": sorted(steps),
        "config": config,
        "model_args": checkpoint["model_args"],
        "weight_decay": [group["weight_decay"] for group in optimizer.param_groups],
        "sums": sums,
        "tokens": tokens,
        "likeliest": written[len(tokens):],
    },
    sys.stdout,
    indent=1,
)
print()
