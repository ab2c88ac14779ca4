"""Stand-ins for what no machine of ours has: a GPU, its driver, and TensorRT."""
