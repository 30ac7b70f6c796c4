"""Beyond one machine: simulation and comparisons on a Ray cluster."""
