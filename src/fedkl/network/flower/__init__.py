"""Flower, which carries the messages: the code that starts its processes and that runs in them."""

RECORD, BLOB, CLIENT = "work", "blob", "client"
"""Record of a message, its entry with the bytes, and a reply's entry with the client's number."""
NO_ANSWER = 64
"""Error code of a client whose process did not answer (Flower's own codes end at 8). It has changed
nothing, so the same request can be sent again."""
