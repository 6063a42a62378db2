"""Models as pure functions, one architecture a file."""
