"""The commands about many runs as functions: `compare`, `sweep`, `paper`, `tune`."""
