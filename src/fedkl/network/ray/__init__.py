"""Ray: clients on the actors of a cluster."""
