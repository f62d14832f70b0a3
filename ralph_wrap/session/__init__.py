"""The life of a session."""
