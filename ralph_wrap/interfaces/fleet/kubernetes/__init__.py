"""The Job of a run, and the way to the cluster: the user's own kubectl."""
