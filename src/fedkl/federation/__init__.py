"""The server's side: select, broadcast, train, validate, aggregate, evaluate."""
