"""Gymnasium environments as simulators, one for each column of a client's job."""
