"""HTTP: the worker's port, and the port of commands without pages."""
