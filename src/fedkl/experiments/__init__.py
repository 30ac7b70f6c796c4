"""Many runs that belong together: compare, tune, reproduce the paper; and who trains them.

Each is a plan (`training/plans.py`) and ordinary runs, so it knows `training` and all below it, and
nothing of the command line.
"""
