"""A session on a remote, while it runs: claimed, pushed, fenced."""
