"""In-memory stand-ins for a broker: a group, a reader, a publisher."""
