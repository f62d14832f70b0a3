#!/usr/bin/env bash
# Two sessions in a new repository: one ends by itself, one is interrupted and resumed; then review and merge.
# It needs git, bash and ralph-wrap. DEMO_PAUSE is the time to read each step, in seconds. The repository stays.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
typed=ralph-wrap # what the user's own shell finds afterwards
command -v ralph-wrap >/dev/null || typed=$(printf %q "$root/.venv/bin/ralph-wrap")
[ ! -x "$root/.venv/bin/ralph-wrap" ] || export PATH="$root/.venv/bin:$PATH"
export GIT_PAGER=cat DEMO_PAUSE=${DEMO_PAUSE-1}
unset RALPH_WRAP_LOG_FORMAT

repository=$(mktemp -d "${TMPDIR:-/tmp}/ralph-demo.XXXXXX")
cd "$repository"

bold='' green='' dim='' plain=''
if [ -t 1 ]; then bold=$'\e[1m' green=$'\e[32m' dim=$'\e[2m' plain=$'\e[0m'; fi

step() { # TEXT...: say what comes now
    printf '\n'
    printf "$bold# %s$plain\\n" "$@"
    sleep "$DEMO_PAUSE"
}

type_in() { printf '%s$%s %s\n' "$green" "$plain" "$1"; } # COMMAND LINE: show it

show() { # COMMAND LINE: show it, run it
    type_in "$1"
    eval "$1"
}

make_project() {
    cat >agent.sh <<'AGENT'
#!/bin/sh
# Stands in for a coding agent. Its prompt is one word: the name of the module that it writes.
set -eu
name=$(cat)
if [ ! -e "$name.py" ]; then
    echo "I write $name.py, and begin with its tests."
    echo "assert $name('a b') == ['a', 'b']" >"test_$name.py"
    sleep "$DEMO_PAUSE"
    git add . && git commit --quiet --message="Tests of the $name"
    echo "def $name(text):" >"$name.py"
    echo "Half of $name.py is written."
elif ! grep -q return "$name.py"; then
    echo "I found half of $name.py, and write the rest."
    sleep "$DEMO_PAUSE"
    [ ! -e "$DEMO_STATE/$name-waits" ] || { touch "$DEMO_STATE/$name-is-here"; exec sleep 600; }
    echo "    return text.split()" >>"$name.py"
    git add . && git commit --quiet --message="The $name"
    echo "All tests pass."
    echo "<promise>COMPLETE</promise>"
fi
AGENT
    chmod +x agent.sh
    git init --quiet --initial-branch=main
    git config user.name "Ralph Demo"
    git config user.email demo@example.com
    git config commit.gpgsign false
    printf '.ralph/\n' >.gitignore
    git add .
    git commit --quiet --message="The project"
}

interrupted() { # COMMAND LINE: show it and run it, with Ctrl-C as soon as the agent waits
    local wrap
    type_in "$1"
    touch "$DEMO_STATE/parser-waits"
    set -m # a process group of its own: a background job of a script ignores SIGINT
    eval "exec $1" </dev/null &
    wrap=$!
    set +m
    until [ -e "$DEMO_STATE/parser-is-here" ] || ! kill -0 "$wrap" 2>/dev/null; do sleep 0.05; done
    sleep "$DEMO_PAUSE"
    printf '^C\n'
    kill -s INT "$wrap" 2>/dev/null || true
    wait "$wrap" || true
    rm "$DEMO_STATE/parser-waits"
}

DEMO_STATE=$(mktemp -d)
export DEMO_STATE
trap 'rm -rf "$DEMO_STATE"' EXIT
make_project

step "Two agents work on one repository, each in a git worktree of its own." "The first one works in the background:"
show "ralph-wrap spawn -p lexer -- ./agent.sh"
step "The second one is interrupted by Ctrl-C, in the middle of a file:"
interrupted "ralph-wrap run -p parser -- ./agent.sh"
step "Nothing is lost: what was not committed is on a branch of its own." "The session goes on where it was:"
show "ralph-wrap resume parser"
step "Both are done. What did they change, and do they conflict?"
show "ralph-wrap review"
step "Take both:"
show "ralph-wrap merge lexer parser"
show "git log --oneline --graph"
step "Now look at it in a browser:"
printf '%s$%s cd %q && %s web\n' "$green" "$plain" "$repository" "$typed"
printf '\n%sThe repository stays. To remove it: rm -rf %q%s\n' "$dim" "$repository" "$plain"
