"""A run's config and the presets: read, checked, resolved; and what follows from a config, once.

It knows the settings and registries of everything below it, and neither runs nor their files.
"""
