# every line that is blamed has its own key
n_layer = 100000
gradient_accumulation_steps = 0
