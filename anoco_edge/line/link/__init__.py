"""The socket between the line and the station's web process."""
