"""Do the tasks of a file, each in a session of its own: :mod:`.state` remembers, :mod:`.runner` works."""
