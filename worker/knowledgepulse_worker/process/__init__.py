"""The parent process, which keeps its child working through outages, hangs and poison."""
