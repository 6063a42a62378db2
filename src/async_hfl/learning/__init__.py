"""Learning: tasks made trainable. The only package that knows JAX.

Importing it does not import JAX, which takes most of a second: `async_hfl.learning.tasks` does.
"""
