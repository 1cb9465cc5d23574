"""What commands share at a terminal: options, arguments, input files, progress, safe text."""
