"""What a session pushes to a remote: its branch alone, or all of it, claimed and fenced."""
