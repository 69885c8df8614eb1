#!/usr/bin/env bash
# Check that what the Makefile installs resolves from the public index alone.
#
# Wheels that lie on this machine, and indexes that its pip is set up with, must not help: a user's
# machine has neither. (PIP_INDEX_URL is kept, for a mirror of the public index.)
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/env"
echo "resolving .[plots,dev,docs] from the public index"
# all extras at once: what resolves together resolves in each of its parts
if env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL -u PIP_NO_INDEX -u PIP_CONSTRAINT \
  PIP_CONFIG_FILE=/dev/null "$work/env/bin/python" -m pip install \
  --disable-pip-version-check --progress-bar off --retries 2 --timeout 60 \
  --dry-run --ignore-installed --constraint constraints.txt '.[plots,dev,docs]' \
  > "$work/log" 2>&1; then
  tail -n 1 "$work/log"
  exit 0
fi
tail -n 20 "$work/log"
if grep -q -i -E 'connection broken|could not fetch url|timed out' "$work/log"; then
  echo "tools/resolve.sh: the public package index cannot be reached" >&2
else
  echo "tools/resolve.sh: constraints.txt does not resolve from the public package index" >&2
fi
exit 1
