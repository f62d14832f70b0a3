"""Prepare a worktree: run the project's ``setup`` command once, before the first iteration.

A process that it leaves running (for example, a database) runs until the session ends; ``teardown`` can stop
it in an orderly way.
"""

from __future__ import annotations

from ralph_wrap.config import SetupSettings
from ralph_wrap.errors import SetupError
from ralph_wrap.loop.iteration_context import IterationContext
from ralph_wrap.loop.policy import CutReason
from ralph_wrap.loop.project_command import CommandRunner, ProjectCommand
from ralph_wrap.system.log import get_logger

log = get_logger()


def set_up(settings: SetupSettings, context: IterationContext, runner: CommandRunner) -> bool:
    """Run the setup command to its end, but never in the project itself: the user prepares the project.

    Arguments:
        settings: the command and its time limit.
        context: of the session.
        runner: runs the command.

    Returns:
        Whether a signal, a request to stop, or the end of the session's time ended it early.

    Raises:
        SetupError: the command failed, or reached its time limit.

    """
    setup = ProjectCommand("setup", settings.setup, settings.setup_timeout, CutReason.SETUP_TIMEOUT)
    if not context.isolated:
        log.event("setup.skipped", f"setup is not run in the project itself: {setup.shown}")
        return False
    try:
        ended = runner.run(setup, context.environ)
    except OSError as error:
        raise SetupError(
            f"setup cannot be run: {error.strerror}: {setup.shown}", "sh has to be on the PATH"
        ) from None
    if ended.cut is CutReason.SETUP_TIMEOUT:
        raise SetupError(
            f"setup was not done after {ended.seconds:g} s: {setup.shown}",
            f"setup_timeout in .ralph/config.toml (0: none); {runner.output}",
        )
    if ended.cut is not None:
        return True
    context.process_tree.keep()  # also after a failure: teardown may have to stop what runs
    if ended.status != 0:
        raise SetupError(f"setup failed with status {ended.status}: {setup.shown}", runner.output)
    return False
