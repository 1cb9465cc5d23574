"""The backends, each in a module of its own, whose `BACKEND` is its class."""
