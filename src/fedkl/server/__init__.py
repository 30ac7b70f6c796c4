"""The server's side: select, run work on clients, validate, transform each, reduce, step.

It asks clients through an engine's interface alone, and knows neither runs nor networks.
"""
