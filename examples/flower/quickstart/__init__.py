"""Flower code as its quick-start is built: nothing here knows async-hfl."""
