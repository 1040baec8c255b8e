batch_size = 1
compile = False
dtype = 'bfloat16'
