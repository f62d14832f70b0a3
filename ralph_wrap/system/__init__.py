"""The doors to the operating system."""
