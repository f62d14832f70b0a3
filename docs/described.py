"""What the reference pages say and the code does not: files, refs, and the class of each answer."""

from __future__ import annotations

from ralph_wrap import errors
from ralph_wrap.branches.intake import BASES
from ralph_wrap.commands.diff import SNAPSHOTS
from ralph_wrap.loop.policy import BLOCKED, CUT_SHORT, NOT_LOGGED_IN
from ralph_wrap.state.project import CLONES, POOL, RUN, WORKTREES

ANSWERS = {
    "apply": "commands.apply.AppliedChanges",
    "audit": "commands.audit.AuditRow",
    "audit --undo": "commands.audit.UndoneFinding",
    "batch": "commands.batch.plan.BatchTask",
    "clean": "commands.clean.CleanedItem",
    "config show": "commands.config.EffectiveSetting",
    "doctor": "commands.doctor.result.DoctorCheck",
    "fleet ps": "interfaces.fleet.listing.IndexRow",
    "fleet ps --all": "interfaces.fleet.listing.FleetRow",
    "fetch": "commands.fetch.bring.FetchedSession",
    "drop": "commands.drop.DroppedBranch",
    "merge": "commands.merge.LandingResult",
    "pool": "commands.pool.PoolEntry",
    "ps": "state.inventory.SessionEntry",
    "restore": "commands.drop.RestorableBranch",
    "restore ID": "commands.drop.RestoredBranch",
    "review": "commands.review.ReviewRow",
    "review --pr ID": "commands.pull_request.open.OpenedPullRequest",
    "rm": "commands.rm.RemovedSession",
    "stop": "commands.stop.StoppedSession",
    "sweep": "commands.sweep.SweptSession",
    "tell": "commands.tell.ToldSession",
    "wait": "commands.wait.WaitedSession",
    "worktree list": "commands.worktree.status.ListedWorktree",
}
"""The class of each answer, or of each entry of it; its docstring has the fields."""

OTHER_ANSWERS: dict[str, dict[str, str]] = {
    "worktree create": {
        "path": "the directory of the worktree.",
        "branch": "its new branch.",
        "basedOn": "the commit from which the branch starts.",
    },
    "worktree cleanup": {
        "removed": "the worktree is gone.",
        "branchDeleted": "its branch is gone, too.",
        "path": "the directory that it had.",
    },
    "worktree enter": {
        "path": "the directory of the worktree.",
        "branch": "its branch.",
        "basedOn": "the commit from which the branch starts.",
        "originalCwd": "the directory to which an exit returns.",
        "tmuxSession": "the name of the tmux session; `null` without `--tmux`.",
    },
    "worktree exit": {
        "action": "`keep` or `remove`.",
        "removed": "the worktree is gone.",
        "path": "the directory of the worktree; `null` if nothing was entered.",
        "branch": "its branch.",
        "originalCwd": "the directory to which the session returns.",
        "tmuxSession": "the name of its tmux session.",
        "message": "what happened, in a sentence.",
    },
    "worktree status": {
        "isWorktree": "the current directory is in a worktree; the other fields exist only then.",
        "path": "the directory of the worktree.",
        "branch": "its branch.",
        "mainRepoPath": "the directory of the main checkout.",
    },
    "trust": {
        "project": "the project root.",
        "commands": "what the project decides beyond limits, by key.",
        "approved": "the user has approved them as they stand.",
        "implied": "why no approval is necessary here; `null` if it is.",
        "repository": "what `.git/config` makes git run, by key: a list of values.",
        "repository_approved": "the user has approved that as it stands.",
    },
}
"""Answers that no class describes."""

ONE_ANSWER = {"apply", "restore ID", "review --pr ID", *OTHER_ANSWERS}
"""Commands with a single answer; the others print a list."""

FILES = {
    ".gitignore": "One line, `.ralph/worktrees/`, if nothing ignores the worktrees yet; see `--ignore`.",
    ".ralph/config.toml": "Your configuration. You may commit it.",
    f"{WORKTREES}/<session>/": "The worktree of a session; gone after the session.",
    f"{CLONES}/<session>/": "The clone of a session with `--isolation clone`; gone after the session.",
    f"{RUN}/.gitignore": "Ignores everything in the directory.",
    f"{RUN}/agents/<id>.json": "The record of a session that runs.",
    f"{RUN}/agents/<id>.lock": "Its lock, which the kernel frees when the session dies.",
    f"{RUN}/sessions/<session>/agent.lock": "A lock that the processes of the agent inherit.",
    f"{RUN}/sessions/<session>/events.jsonl": "The event log: one JSON object per line.",
    f"{RUN}/sessions/<session>/index": "What the worktree had at the end of the last iteration; gone after "
    "the session, and so is the copy of the agent's index beside it, `index-staged`.",
    f"{RUN}/sessions/<session>/messages/": "What `ralph-wrap tell` has told it, and no agent has read.",
    f"{RUN}/sessions/<session>/output.log": (
        "The agent's output, unchanged; of more than `max_output`, the beginning and the end."
    ),
    f"{RUN}/sessions/<session>/record.json": "The record of a finished session.",
    f"{RUN}/sessions/<session>/report.json": "How the session ended; see [JSON](json.md#reportjson).",
    f"{RUN}/sessions/<session>/saved_paths.jsonl": "All saved paths, if there are too many for the report; "
    "so for each list in it.",
    f"{RUN}/sessions/<session>/gate.json": "The last run of its gate.",
    f"{RUN}/sessions/<session>/start.json": "What `resume` needs to start it again.",
    f"{RUN}/sessions/<session>/teardown.json": "The `teardown` that still has to run, for a sweep or `rm`.",
    f"{RUN}/sessions/<session>/stop": "A request of `ralph-wrap stop`.",
    f"{RUN}/batches/": "What `batch` remembers of the tasks of each file, and its locks.",
    f"{RUN}/bundles/<session>.bundle": "The work of a clone, until the repository has it.",
    f"{RUN}/replicas/<session>/": "The repository in which ralph-wrap saves what a clone holds.",
    f"{RUN}/limits/": "Until when the usage limit of an account holds.",
    f"{RUN}/landing/": "Temporary worktrees while branches are merged.",
    f"{POOL}/": "Warm worktrees, with `pool = N`.",
    f"{RUN}/trash/": "Removed worktrees that are not deleted yet.",
    f"{RUN}/containers/": "Locks of `ralph-wrap init`, by which other containers know that this one lives.",
    f"{RUN}/expiring.json": "When each dropped branch that is due was first found to be so.",
    f"{RUN}/expiring-sessions.json": "The same for the files of sessions.",
    f"{RUN}/checks.json": "Results of `check`.",
    f"{RUN}/landings.jsonl": "What has landed: one JSON object per line.",
    f"{RUN}/landing-<n>.json": "The note of a killed merge that is not yours, or cannot be read.",
    "app.git.ralph/": "Beside a bare repository `app.git`: it holds `.ralph/`.",
    ".git/objects/ralph-wrap-save-*": "What a save stores, until it is one pack in `pack/`.",
    ".git/ralph-wrap-aside/": "What `audit --undo` has taken away, so that an undo can be undone.",
}
"""The files below the project root."""

REFS = {
    "refs/heads/ralph/<id>": "The branch of a session.",
    "refs/heads/ralph/<id>-wip": "Its saved work: what was uncommitted.",
    f"{SNAPSHOTS}<id>/<n>": "What was uncommitted at the end of iteration *n*, if the loop went on; "
    "of many, the last ones stay.",
    f"{SNAPSHOTS}<id>/commit-<n>": "Commits that no branch held.",
    f"{SNAPSHOTS}<id>/submodule-<n>": "The same of a submodule, in its repository or in that of the project.",
    "refs/ralph/dropped/<id>": "The tip of a branch that `drop` has deleted; with `-wip`, its saved work.",
    "refs/ralph/dropped-branches/<name>": "The same for a branch that is not below `ralph/`.",
    "refs/ralph/pool/": "Warm worktrees.",
    f"{BASES}<id>": "What was last taken in from a clone, or the commit that the clone starts from.",
    "refs/ralph-remotes/<remote>/": "What the last fetch or push has seen of the sessions on a remote.",
    "refs/ralph/claims/<id>": "On a remote: the claim of a session, a JSON object.",
    "refs/ralph/fleet/<run>/": "On a remote: a run of a fleet, its indexes, and what its workers printed.",
    "refs/ralph/rescue/<id>/<session>/": "On a remote: work of a session that lost its claim.",
}
"""The refs in the repository of the project."""

SESSION_STATUSES = {
    0: "The loop ended as asked: the agent kept its promise, `stop` ended it, or a limit was reached after a "
    "successful iteration.",
    "n": "The exit status of the last iteration, if it is the reason why the loop ended.",
    errors.UsageError.exit_code: "An option, the configuration, or a file that one of them names is wrong.",
    BLOCKED: "The agent asks a person: the report has its question.",
    NOT_LOGGED_IN: "The agent is not logged in: the report has its words.",
    CUT_SHORT: "A limit of time, cost or tokens cut the last iteration short.",
    errors.RalphError.exit_code: "ralph-wrap itself failed; see [the errors](errors.md). "
    "Also: `setup` failed or is not approved, or `--on-leak stop` ended the loop.",
    errors.AgentError.exit_code: "The agent's command cannot run.",
    errors.AgentNotFoundError.exit_code: "The agent's command was not found.",
    "128+n": "Signal *n* ended the session.",
}
"""The exit statuses of a session."""
