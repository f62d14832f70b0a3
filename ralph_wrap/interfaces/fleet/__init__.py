"""Many portable sessions at once: the worker that an engine starts, and the refs that they meet at."""
