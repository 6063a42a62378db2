"""Learning: tasks made trainable. The only package that knows JAX.

`tasks` has the learners by name, `null` the one that learns nothing. Neither imports JAX until a task is made.
"""
