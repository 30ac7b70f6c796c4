"""Local training: what one client does with its own data.

It knows worlds by their spaces, and neither clients nor servers; an algorithm comes as an argument.
"""
