"""`anoco-edge bench --line`: the time from trigger to output, measured by clients."""
