"""The settings for readers: reference, page, run files that explain themselves."""
