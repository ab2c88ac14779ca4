"""One trigger, one picture, one verdict, one output, before the deadline."""
