# GPT-2 124M on OpenWebText, written as nanoGPT's own config is.
# started as: torchrun --standalone --nproc_per_node=8 train.py config/train_gpt2.py

wandb_log = True
wandb_project = 'owt'
wandb_run_name='gpt2-124M'

# 12 sequences x 1024 tokens x 40 micro-batches = 491,520 tokens an iteration
batch_size = 12
block_size = 1024
gradient_accumulation_steps = 5 * 8

# 300B tokens in all
max_iters = 600000
lr_decay_iters = 600000

# evaluation
eval_interval = 1000
eval_iters = 200
log_interval = 10

# regularisation
weight_decay = 1e-1
