"""What the tools share at a terminal: options, arguments, input files, progress, reports."""
