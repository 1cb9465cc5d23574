"""HTTP: the worker's port, the port of commands without pages, and the client for other servers."""
