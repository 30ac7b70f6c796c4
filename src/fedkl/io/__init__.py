"""Files, strict JSON and TOML, locks, arrays by name, compiled code, tables and progress bars.

It knows nothing of runs.
"""
