"""Accuracy on labelled data sets: metrics, rival scorers, the paper's figures, reports."""
