"""The work in submodules as one commit in the repository of the project, which a remote can have."""
