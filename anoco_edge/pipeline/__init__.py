"""The path of a frame from pixels to an inspection, in Python or in the native library."""
