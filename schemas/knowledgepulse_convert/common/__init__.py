"""What the converters of all formats share: the common form, its reading, its conversion to traces."""
