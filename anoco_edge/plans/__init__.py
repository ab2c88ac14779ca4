"""TensorRT plans: built once, kept in the user's cache, never trusted without their hash."""
