"""Cameras: each takes or receives pictures and posts them with the time of exposure."""
