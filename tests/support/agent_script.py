"""Lines of a shell script that is an agent, and what Claude Code would print."""

from __future__ import annotations

import json
from typing import Any

PROMISE = "<promise>COMPLETE</promise>"
TRUSTED = {"RALPH_TRUST": "1"}


def logged(words: str) -> str:
    """Return what waits until words are in ``output.log``: of two pipes, either may be read first."""
    log = '"$RALPH_PROJECT/.ralph/run/sessions/$RALPH_SESSION_ID/output.log"'
    return f'until grep -aq "{words}" {log}; do sleep 0.01; done\n'


def print_line(document: dict[str, Any]) -> str:
    """Return a line of a shell script that prints a document."""
    return f"cat <<'EOT'\n{json.dumps(document, separators=(',', ':'))}\nEOT\n"


def says(words: str, tokens: int = 11) -> str:
    """Return what prints words that are not the final answer, and what they have cost."""
    content = [{"type": "text", "text": words}]
    usage = {"input_tokens": tokens - 1, "output_tokens": 1}
    message = {"id": "m", "content": content, "usage": usage}
    return print_line({"type": "assistant", "message": message, "parent_tool_use_id": None})


def result_line(words: str, **more: Any) -> str:
    """Return what prints the final answer: 123 tokens, a quarter of a dollar."""
    usage = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 3}
    document = {"type": "result", "subtype": "success", "is_error": False, "result": words}
    return print_line({**document, "usage": usage, "total_cost_usd": 0.25, "num_turns": 2, **more})


def limited(seconds: int | None) -> str:
    """Return what prints that the usage limit is reached, for this number of seconds."""
    printed = ""
    if seconds is not None:
        info = '"rate_limit_info":{"status":"rejected","resetsAt":%s}'
        printed = f"""printf '{{"type":"rate_limit_event",{info}}}\\n' $(($(date +%s) + {seconds}))\n"""
    return printed + result_line("Limit", is_error=True, api_error_status=429)
