"""Operations on dead letters: list, show, replay to the raw topic."""
