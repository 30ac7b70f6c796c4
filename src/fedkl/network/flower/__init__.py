"""Flower carries the messages: what starts its processes, and what runs inside of them."""

NO_ANSWER = 64
"""The code of a client's error whose process gave no answer, in time or at all; Flower's own end
at 8. It has made nothing of what it was asked, so the very same can be asked again."""
