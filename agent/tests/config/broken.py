# Lines that cannot be used, and some that can.
import os
batch_size = 1
n_layer = os.cpu_count()
block_size = 'long'
dropout = 0.1 +
batchsize = 8
