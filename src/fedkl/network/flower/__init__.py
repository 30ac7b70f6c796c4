"""Flower carries the messages: what starts its processes, and what runs inside of them."""
