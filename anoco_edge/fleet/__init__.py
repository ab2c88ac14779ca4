"""Work on more than one machine: a Ray cluster, workers on it, and what they have done so far."""
