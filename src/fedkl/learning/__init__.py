"""Local training: what one client does with its own data."""
