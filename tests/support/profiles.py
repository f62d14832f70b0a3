"""What Hypothesis tries: the same examples in each ``make test``, more and random ones in ``make test-all``.

A failure of ``thorough`` prints the line that repeats it (``@reproduce_failure``).
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, and nothing about the code.
_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("repeatable", _ANY_MACHINE, derandomize=True, database=None, max_examples=40)
settings.register_profile("thorough", _ANY_MACHINE, print_blob=True, max_examples=300)
settings.load_profile("repeatable")


def costly_examples() -> int:
    """Return how many examples are tried of a test in which each makes a repository."""
    return settings().max_examples // 8
