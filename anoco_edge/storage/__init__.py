"""Open files and folders without following links, and replace them by one rename."""
