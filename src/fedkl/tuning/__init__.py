"""Choosing settings: a grid with successive halving, and the paper's heuristic for d_global.

Both are directories of ordinary runs (`fedkl.workers`) with a plan, go on with `fedkl resume DIR`,
and end with a config file, best.toml, that says which seeds it was chosen on.
"""
