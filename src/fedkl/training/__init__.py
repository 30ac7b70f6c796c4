"""A run's life: its directory, log and checkpoints; train, resume, restore, verify.

What reads a run's files needs no JAX; what trains imports it when it is called for.
"""
