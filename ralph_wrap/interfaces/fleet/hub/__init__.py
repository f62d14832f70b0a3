"""A git server for one project: it takes the many pushes of sessions, and forwards them in few to origin."""
