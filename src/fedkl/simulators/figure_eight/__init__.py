"""The figure-eight road with its human drivers and autonomous vehicles, on SUMO."""
