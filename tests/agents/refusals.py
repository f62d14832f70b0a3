"""What services answer instead of working, as their documentation or their own command lines have it.

- OpenAI (https://platform.openai.com/docs/guides/error-codes), the same in the stream of an answer;
- Anthropic (https://docs.anthropic.com/en/api/errors, …/en/api/rate-limits);
- Gemini (https://ai.google.dev/gemini-api/docs/rate-limits) and Code Assist, whose details are those of
  https://cloud.google.com/apis/design/errors.

Here they meet agents that are set up to ask once, where they let themselves be (``programs.py``).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.agents.dialects import HURRY
from tests.agents.script import Refusing

UNTIL = 1_900_000_000
"""When a usage limit ends that has a fixed end."""


class Refusal(NamedTuple):
    """An answer, and what the agent that gets it has to be understood to say.

    Attributes:
        answer: of the service.
        means: ``limit``, ``passing``, ``logged-out`` or ``failure``.
        wait: seconds until the limit ends, as the service names them.
        until: the same as a time, in seconds since the epoch.
        env: what the agent's environment needs besides.

    """

    answer: Refusing
    means: str
    wait: float | None = None
    until: float | None = None
    env: dict[str, str] = {}  # noqa: RUF012 -- nobody changes it


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): printed for name, printed in headers.items()}


def _openai(status: int, code: str | None, message: str, **headers: str) -> Refusing:
    error = {"message": message, "type": code or "server_error", "param": None, "code": code}
    return Refusing(status, {"error": error}, _named(headers))


def _anthropic(status: int, kind: str, message: str, **headers: str) -> Refusing:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return Refusing(status, body, _named(headers))


def _google(status: int, kind: str, message: str, **details: dict[str, Any]) -> Refusing:
    printed = [
        {"@type": f"type.googleapis.com/google.rpc.{name}", **detail} for name, detail in details.items()
    ]
    return Refusing(
        status, {"error": {"code": status, "message": message, "status": kind, "details": printed}}
    )


_WRONG_KEY = "Incorrect API key provided: none."
_CHECK = "You exceeded your current quota, please check your plan and billing details."
_RATE = (
    "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000, Used 29000. Please try again in {}."
)
_LATER = "This request would exceed your account's rate limit. Please try again later."
_CREDIT = (
    "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade."
)
_EXPIRED = "OAuth token has expired. Please obtain a new token or refresh your existing token."
_SUBSCRIPTION = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "none"}
_CREDENTIALS = (
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other"
    " valid authentication credential."
)
_FREE = {
    "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
    "quotaDimensions": {"location": "global", "model": "gemini-2.5-pro"},
    "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
}
_TO_ANTHROPIC = {
    "OPENCODE_CONFIG_CONTENT": json.dumps({"provider": {"scripted": {"npm": "@ai-sdk/anthropic"}}})
}

REFUSALS: dict[str, dict[str, Refusal]] = {
    "claude": {
        "credit": Refusal(_anthropic(400, "invalid_request_error", _CREDIT), "limit"),
        "unauthorized": Refusal(_anthropic(401, "authentication_error", "invalid x-api-key"), "logged-out"),
        "expired": Refusal(
            _anthropic(401, "authentication_error", _EXPIRED), "logged-out", env=_SUBSCRIPTION
        ),
        "scope": Refusal(
            _anthropic(403, "permission_error", "OAuth token does not meet scope requirement user:inference"),
            "logged-out",
            env=_SUBSCRIPTION,
        ),
    },
    "codex": {
        "unauthorized": Refusal(
            _openai(401, None, "Missing bearer or basic authentication in header"), "logged-out"
        ),
        "quota": Refusal(_openai(429, "insufficient_quota", _CHECK), "limit"),
        "rate": Refusal(_openai(429, "rate_limit_exceeded", _RATE.format("1s"), retry_after="1"), "limit"),
        "error": Refusal(_openai(500, None, "The server had an error while processing it"), "passing"),
        "capacity": Refusal(
            _openai(503, "server_is_overloaded", "Our servers are currently overloaded."), "passing"
        ),
        "slow": Refusal(_openai(503, None, "The engine is currently overloaded"), "passing"),
        "streamed": Refusal(
            Refusing(
                200,
                {
                    "type": "response.failed",
                    "response": {
                        "id": "resp_1",
                        "status": "failed",
                        "error": {"code": "rate_limit_exceeded", "message": _RATE.format("1.054s")},
                    },
                },
            ),
            "limit",
            wait=1.054,
        ),
    },
    "opencode": {
        "unauthorized": Refusal(_openai(401, "invalid_api_key", _WRONG_KEY), "logged-out"),
        "quota": Refusal(_openai(429, "insufficient_quota", _CHECK), "limit"),
        "rate": Refusal(_openai(429, "rate_limit_exceeded", _RATE.format("7m12s")), "limit", wait=432),
        "credits": Refusal(_openai(402, None, "Insufficient credits"), "limit"),
        "error": Refusal(_openai(500, None, "The server had an error while processing it"), "passing"),
        "anthropic": Refusal(
            _anthropic(
                *(429, "rate_limit_error", _LATER),
                anthropic_ratelimit_unified_reset=str(UNTIL),
                retry_after="3600",
                retry_after_ms=HURRY["retry-after-ms"],
            ),
            "limit",
            until=UNTIL,
            env=_TO_ANTHROPIC,
        ),
        "credit": Refusal(_anthropic(400, "invalid_request_error", _CREDIT), "limit", env=_TO_ANTHROPIC),
    },
    "gemini": {
        "unauthorized": Refusal(_google(401, "UNAUTHENTICATED", _CREDENTIALS), "logged-out"),
        "wrong-key": Refusal(
            _google(
                *(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
                ErrorInfo={"reason": "API_KEY_INVALID", "domain": "googleapis.com"},
            ),
            "logged-out",
        ),
        "minute": Refusal(
            _google(
                *(429, "RESOURCE_EXHAUSTED"),
                f"{_CHECK}\n* Quota exceeded, limit: 500\nPlease retry in 38.5s.",
                QuotaFailure={"violations": [_FREE]},
                RetryInfo={"retryDelay": "38.5s"},
            ),
            "limit",
            wait=38.5,
        ),
        "exhausted": Refusal(
            _google(
                *(429, "RESOURCE_EXHAUSTED"),
                "You have exhausted your capacity on this model. Your quota will reset after 8h44m7s.",
                ErrorInfo={"reason": "QUOTA_EXHAUSTED", "domain": "cloudcode-pa.googleapis.com"},
                RetryInfo={"retryDelay": "31447.5s"},
            ),
            "limit",
            wait=31447,
        ),
        "capacity": Refusal(
            _google(
                *(429, "RESOURCE_EXHAUSTED", "No capacity available for model gemini-2.5-pro on the server"),
                ErrorInfo={"reason": "MODEL_CAPACITY_EXHAUSTED", "domain": "cloudcode-pa.googleapis.com"},
            ),
            "passing",
        ),
        "bare": Refusal(_google(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted."), "limit"),
        "error": Refusal(_google(500, "INTERNAL", "An internal error has occurred."), "passing"),
        "unavailable": Refusal(_google(503, "UNAVAILABLE", "The model is overloaded."), "passing"),
    },
    "copilot": {"unauthorized": Refusal(_openai(401, "invalid_api_key", _WRONG_KEY), "logged-out")},
    "qwen": {"unauthorized": Refusal(_openai(401, "invalid_api_key", _WRONG_KEY), "logged-out")},
    "kimi": {},  # its stream tells nothing of an answer that it does not ask for again
    "droid": {"unauthorized": Refusal(_openai(401, "invalid_api_key", _WRONG_KEY), "logged-out")},
}
"""By agent and case."""
