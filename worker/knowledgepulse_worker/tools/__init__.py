"""What one command does, one room for each."""
