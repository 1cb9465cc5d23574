"""Labels of traces: what they say, where they are read from, and the options of commands that take them."""
