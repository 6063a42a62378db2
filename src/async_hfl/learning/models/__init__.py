"""Models as pure functions, one architecture per file."""
