"""What an agent that can write the repository can do to the person who reviews its work."""
