"""The base of every other part: errors, settings, the registry of names, plugins, text, processes.

It knows nothing of the rest of the package, and imports neither JAX nor NumPy.
"""
