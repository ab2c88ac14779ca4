"""The page of a station: a web process beside the line, which it cannot disturb."""
