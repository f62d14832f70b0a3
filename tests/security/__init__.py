"""What an agent or a clone can try to do to the user, and why it fails."""
