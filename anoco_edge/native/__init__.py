"""Calls libanoco_edge, the native runtime, through ctypes, which releases the GIL meanwhile."""
