"""Tasks from the user's file: loaded, checked and converted to tasks that the engine trains."""
