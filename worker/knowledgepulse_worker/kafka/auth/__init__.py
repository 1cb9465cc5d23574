"""How a client shows who it is: OAuth tokens and TLS."""
