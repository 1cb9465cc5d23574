"""The redaction of contributed traces by a function of the user's, in a process of its own."""
