"""What the options of the larger commands ask for: read and checked before any work is done."""
