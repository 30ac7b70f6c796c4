"""Ray: clients on the actors of a cluster.

An actor runs the code of the engines in one process; here is what starts, feeds and replaces it.
"""
