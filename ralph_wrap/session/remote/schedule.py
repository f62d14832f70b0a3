"""When a session tries to push again: after a beat, or after growing waits while that fails."""

from __future__ import annotations

import time

_LONGEST_WAIT = 600.0  # seconds between two attempts, and of silence
_SILENCE = 30.0  # seconds; when a network is back, an old connection stays silent as long as it was away


class Schedule:
    """The times of the next attempts, as :func:`time.monotonic` counts.

    A remote that does not answer is one thing, one that refuses a push is another. While a remote refuses the
    work of a session, the session pushes its claim alone. So other machines see that it lives.

    Arguments:
        beat: seconds between two pushes.

    Attributes:
        due: time of the next attempt.
        reason: why the last push of work failed; empty if the remote has taken one since.
        silence: seconds after which the next attempt gives a silent connection up. A server that works looks
            silent, too, so this doubles each time, until the remote takes a push in less than the first one.

    """

    def __init__(self, beat: float) -> None:
        self._beat = beat
        self._failures = 0
        self._refusals = 0
        self._whole_from = 0.0
        self._begun = 0.0
        self.silence = _SILENCE
        self.reason = ""
        self.due = time.monotonic() + beat

    @property
    def is_failing(self) -> bool:
        """Whether the remote lacks something since the last attempt."""
        return bool(self._failures or self._refusals)

    @property
    def is_refused(self) -> bool:
        """Whether the remote has refused the last push of work."""
        return self._refusals > 0

    @property
    def troubles(self) -> int:
        """The number of failures and refusals since the last success."""
        return self._failures + self._refusals

    @property
    def brings_work(self) -> bool:
        """Whether the next push may bring work, not the claim alone."""
        return time.monotonic() >= self._whole_from

    def begin(self) -> float:
        """Note that an attempt begins; return how long it may be silent."""
        self._begun = time.monotonic()
        self.due = self._begun + self._beat
        return self.silence

    def take_push(self) -> None:
        """Note that the remote has answered to a push that it has taken it."""
        if time.monotonic() < self._begun + _SILENCE:
            self.silence = _SILENCE

    def succeed(self, *, with_work: bool) -> None:
        """Note that the remote has taken a push."""
        self._failures = 0
        if with_work:
            self._refusals, self.reason = 0, ""

    def fail(self, reason: str, *, look: bool) -> None:
        """Note that an attempt failed.

        Arguments:
            reason: why.
            look: a look at the remote follows at once; it shows what the failure means.

        """
        self.reason = reason
        if time.monotonic() >= self._begun + self.silence:
            self.silence = min(2 * self.silence, _LONGEST_WAIT)
        if look:
            self.due = time.monotonic()
        else:
            self._failures += 1
            self.due = time.monotonic() + self._wait(self._failures)

    def refuse(self, *, with_work: bool) -> None:
        """Note that the remote answers, and has not taken the last push."""
        if self._failures:  # it did not answer before: nothing was refused
            self._failures = 0
            self.due = time.monotonic()
            return
        self._refusals += 1
        self._whole_from = time.monotonic() + self._wait(self._refusals)
        self.due = time.monotonic() if with_work else self._whole_from

    def start_again(self) -> None:
        """Note that the session pushes to other refs from now on: nothing was refused there."""
        self._refusals, self._whole_from, self.due = 0, 0.0, time.monotonic()

    def _wait(self, failures: int) -> float:
        return min(self._beat * 2.0 ** min(failures - 1, 10), _LONGEST_WAIT)
