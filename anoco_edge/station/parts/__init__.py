"""The parts that a station has seen: searched, counted, exported, reviewed."""
