"""TensorRT plans: how they are built, where they are kept, and the GPU that they are bound to."""
