"""Where results go: a folder, the console, the service manager, behind one protocol."""
