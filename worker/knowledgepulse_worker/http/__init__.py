"""The HTTP ports: the parent's, which proxies the worker's pages, and that of commands without pages."""
