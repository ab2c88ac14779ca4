"""What station.toml may say, and how a mistake in it is told."""
