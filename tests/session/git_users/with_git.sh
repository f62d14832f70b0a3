#!/bin/sh
# An agent that works with the git of its own PATH; its argument says what else it does with it.
set -eu

# A gc removes empty directories of objects. In between, git cannot write an object, and says so.
again() { "$@" || "$@"; }

if [ ! -e committed ]; then
    echo "a committed line" > committed; again git add committed; again git commit -qm "the agent's"
    echo "a staged line" > staged; again git add staged
    again git rm -q gone; again git mv moved renamed
    echo "staged before" > both; again git add both
else
    git log -1 --format=%s > resumed; again git add resumed; again git commit -qm "again"
fi
case $1 in
git_with_relative_worktree) git -c worktree.useRelativePaths=true worktree add -q -b agents "$RALPH_PROJECT/../agents" ;;
esac
