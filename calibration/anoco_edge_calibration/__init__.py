"""How good is it: accuracy on labelled data, thresholds with a stated false-reject rate."""
