"""Pictures for people: what the detector saw, drawn with NumPy and Pillow only."""
