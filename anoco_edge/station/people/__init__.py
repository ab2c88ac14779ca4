"""Who may do what at a station, and the record of who did it."""
