"""From the bytes of a picture to the pixels that a model takes: decoding, checks, preprocessing."""
