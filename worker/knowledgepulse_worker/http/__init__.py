"""HTTP: the worker's port, and what the ports of tools share with it."""
