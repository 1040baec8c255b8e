"""Records the GPU memory of a PyTorch program on a machine without a GPU, for `headroom replay`."""
