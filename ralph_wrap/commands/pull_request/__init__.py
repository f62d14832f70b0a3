"""Open a pull request for the work of a session."""
