"""The judge, a process of its own: pictures in shared memory in, opinions out."""
