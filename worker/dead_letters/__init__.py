"""What operators do with dead letters: list them, look at one, replay them to the raw topic."""
