#!/usr/bin/env bash
# Two sessions at once in a repository made for it: one ends by itself, one is interrupted; then what they left.
# In a container when a Docker engine answers and the image can be built, else on the host. The repository stays.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PATH="$root/.venv/bin:$PATH" GIT_PAGER=cat

repository=$(mktemp -d "${TMPDIR:-/tmp}/ralph-demo.XXXXXX")
scratch=$(mktemp -d)
container=

clean_up() {
    jobs -p | while read -r job; do kill "$job"; done
    [ -z "$container" ] || docker rm --force --volumes "$container" >/dev/null
    rm -rf "$scratch"
}
trap clean_up EXIT

say() { printf '%s\n' "$@"; }

show() { # COMMAND LINE: print it, then what it prints in the repository
    printf '\n$ %s\n' "$1"
    (cd "$repository" && eval "$1")
}

wait_for() { # WHAT COMMAND...
    local what=$1 deadline=$((SECONDS + 30))
    shift
    until "$@" >/dev/null; do
        if [ $SECONDS -ge $deadline ]; then
            say "demo: waited 30 s for $what; the sessions said:" >&2
            cat "$scratch"/*.out >&2
            exit 1
        fi
        sleep 0.05
    done
}

make_repository() {
    cat >"$repository/agent.sh" <<'AGENT'
#!/bin/sh
# Stands in for a coding agent: each iteration commits one step of $TASK, the second leaves more than that.
set -eu
until [ "$(git branch --list 'ralph/????' | wc -l)" -eq 2 ]; do sleep 0.05; done # until both sessions are there
echo "$TASK, step $RALPH_ITERATION" >>"$TASK.txt"
git add "$TASK.txt"
git commit --quiet --message="$TASK: step $RALPH_ITERATION"
if [ "$RALPH_ITERATION" -eq 2 ]; then
    echo "$TASK, step 3, half done" >>"$TASK.txt"
    echo "a file that git has not seen" >"$TASK-notes.txt"
    [ -z "$HANG" ] || exec sleep 600 # until a signal ends it
fi
AGENT
    chmod +x "$repository/agent.sh"
    (
        cd "$repository"
        git init --quiet --initial-branch=main
        git config user.name "ralph demo"
        git config user.email demo@example.com
        git config commit.gpgsign false
        git add agent.sh
        git commit --quiet --message="An agent"
    )
}

image_name() {
    command -v docker >/dev/null || { say "there is no docker command" >&2 && return 1; }
    cd "$root" && python -m tests.container.image
}

choose_place() {
    local image
    say "Looking for a Docker engine; making the image takes a minute the first time."
    if image=$(image_name 2>"$scratch/image.log"); then
        container=$(docker run --detach --network none --volume "$repository:/workspace/project" "$image")
        place=(docker exec --tty --env TASK --env HANG --env PIDS "$container")
        export PIDS=/tmp
        say "Both sessions run in one container, each by its own docker exec."
    else
        # a terminal of its own, as docker exec --tty gives one
        place=(python -c 'import os, pty, sys; os.chdir(sys.argv[1]); pty.spawn(sys.argv[2:])' "$repository")
        export PIDS=$scratch
        say "Both sessions run on the host: $(tail -n 1 "$scratch/image.log")"
    fi
}

start() { # TASK HANG: a session in the background
    # shellcheck disable=SC2016 # expanded over there
    TASK=$1 HANG=$2 "${place[@]}" \
        sh -c 'echo $$ >"$PIDS/$TASK.pid" && exec ralph-wrap run --name "$TASK" -n 2 -- ./agent.sh' \
        >"$scratch/$1.out" 2>&1 </dev/null &
}

branch_of() { grep -o 'ralph/[0-9a-f]\{4\}' "$scratch/$1.out" | head -n 1; }

make_repository
choose_place
set -m # a process group for each session: a background job of a script would be deaf to SIGINT otherwise
start parser ""
start lexer yes
wait_for "the lexer to be in its second iteration" compgen -G "$repository/.ralph/worktrees/*/lexer-notes.txt"
# shellcheck disable=SC2016
"${place[@]}" sh -c 'kill -s INT "$(cat "$PIDS/lexer.pid")"'
wait

printf '\n── parser: ralph-wrap run --name parser -n 2 -- ./agent.sh\n'
tr -d '\r' <"$scratch/parser.out"
printf '\n── lexer: the same at the same time, interrupted in its second iteration\n'
tr -d '\r' <"$scratch/lexer.out"

parser=$(branch_of parser)
lexer=$(branch_of lexer)
printf '\n── What they left, looked at on the host in %s, also with plain git\n' "$repository"
show "ralph-wrap review"
show "git branch --list 'ralph/*'"
show "git log --oneline main..$parser"
show "git diff --stat $parser $parser-wip"
show "git log --oneline main..$lexer"
show "git diff $lexer $lexer-wip"
show "git worktree list"
show "git status --short"
say "" "The repository stays for a closer look. To remove it: rm -rf $repository"
