"""Tasks of the user's own: what a file gives, checked, made into what the engine trains."""
