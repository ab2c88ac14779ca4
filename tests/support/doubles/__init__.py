"""Doubles of what no machine of ours has: a GPU, its driver, and TensorRT."""
