"""What is on disk about sessions."""
