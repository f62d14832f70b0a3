"""One verb each; no command imports another."""
