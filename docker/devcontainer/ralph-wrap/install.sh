#!/bin/sh
# Install ralph-wrap into the image of a development container, into an environment of its own. Runs as root.
set -eu
cd "$(dirname "$0")"
home=/usr/local/lib/ralph-wrap

if ! command -v git >/dev/null || ! python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    apt-get update
    apt-get install -y --no-install-recommends git python3 python3-venv
    rm -rf /var/lib/apt/lists/*
fi
python3 -m venv "$home"
"$home/bin/pip" install --no-cache-dir "${SOURCE:-ralph-wrap}"
ln -sf "$home/bin/ralph-wrap" /usr/local/bin/ralph-wrap
