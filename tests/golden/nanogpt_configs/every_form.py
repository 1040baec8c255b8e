"""Every form that the reader evaluates, and two that it does not.

Run by Python, this gives the values that shared/planner/src/nanogpt/properties.rs expects.
"""
import time

out_dir = 'out-größe-' + str(64 * 12)  # é and 世 before a value
wandb_project = ('two '
                 'words')
wandb_run_name = 'run' + str(time.time())

# the batch: 480 sequences in all
batch_size = 12; batch_size *= 2
block_size = 0x400
gradient_accumulation_steps = 480 // batch_size
tokens_per_iter = gradient_accumulation_steps * batch_size * block_size

n_layer = n_head = 12
n_embd = \
    64 * n_head
dropout: float = 0.0 if n_layer < 12 else .1

learning_rate = 6e-4
min_lr = learning_rate / 10
max_iters = 600_000
lr_decay_iters = int(6e5)

compile = not True
dtype = 'bfloat16' if compile and n_layer > 6 else 'float16'
if n_layer > 100:
    bias = True
