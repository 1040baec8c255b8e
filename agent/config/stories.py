# The default run of `headroom train`: a GPT of 0.8 million parameters with one token per character. Its data set is the
# stories that `headroom data prepare builtin` writes. nanoGPT runs this config too.
out_dir = 'out-stories'
dataset = 'builtin'

n_layer = 4
n_head = 4
n_embd = 128
block_size = 128
dropout = 0.0
bias = False

batch_size = 16
gradient_accumulation_steps = 1
learning_rate = 2e-3
min_lr = 2e-4
warmup_iters = 100
max_iters = 5000
lr_decay_iters = 5000
beta2 = 0.99

eval_interval = 500
eval_iters = 20
log_interval = 10
always_save_checkpoint = True

device = 'cpu'
compile = False
