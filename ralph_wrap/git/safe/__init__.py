"""A git that obeys only what is harmless in the configuration of a repository."""
