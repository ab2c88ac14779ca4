"""Work that takes long, done one at a time by a worker of low priority."""
