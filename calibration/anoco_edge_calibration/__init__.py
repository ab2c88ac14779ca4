"""Measures how good a detector is: thresholds, INT8 ranges, accuracy on labelled data sets."""
