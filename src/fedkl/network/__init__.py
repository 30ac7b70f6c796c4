"""A federation over a network: what is sent, what a client keeps, and the process that answers.

Nothing here carries messages between machines; whoever does (Flower) sees bytes. Importing this
package imports no JAX: what only hands bytes on need not wait for it.
"""

MAX_MESSAGE_BYTES = 10**9
"""Bytes of a message, unless somebody allows fewer."""
