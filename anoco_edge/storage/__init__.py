"""Files and folders on a disk: opened without following links, replaced by one rename."""
