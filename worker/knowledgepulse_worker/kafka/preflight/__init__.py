"""What is wrong before the first record: rights, and why a broker cannot be reached."""
