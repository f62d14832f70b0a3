"""The files about sessions on disk."""
