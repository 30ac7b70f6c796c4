"""The server's side: select, run work on clients, validate, transform each, reduce, step."""
