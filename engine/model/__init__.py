"""The model: weights in, logits out. Its cache, its kernels, and what a pass costs."""
