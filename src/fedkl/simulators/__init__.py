"""Simulators on the host, in processes of their own, and whole episodes in them; no JAX."""
