"""Redaction of contributed traces by a function of the user, which runs in its own process."""
