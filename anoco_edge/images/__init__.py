"""Turn the bytes of a picture into the pixels that a model takes: decode, check, preprocess."""
