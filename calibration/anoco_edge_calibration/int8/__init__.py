"""INT8: how large the numbers inside a backbone become on pictures of good parts."""
