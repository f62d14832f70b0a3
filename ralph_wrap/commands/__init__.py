"""The commands, one module or folder for each; no command imports another."""
