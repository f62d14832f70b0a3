"""The limits that all workers of a run share: its cost, and the usage limit of an account."""
