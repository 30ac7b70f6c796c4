"""A federation over a network: the messages, the state that a client keeps, its process, and keys.

Flower carries the messages between machines and sees only bytes. Importing this package imports no
JAX, so that the process that only forwards bytes starts quickly.
"""

MAX_MESSAGE_BYTES = 10**9
"""Default limit of a message."""
