#!/usr/bin/env bash
# Check that what the Makefile installs resolves from the public index alone.
#
# uv resolves in seconds, from the metadata of the index, what pip takes minutes for. Wheels that
# lie on this machine, and indexes that its pip or uv is set up with, must not help: a user's
# machine has neither. (PIP_INDEX_URL is kept, for a mirror of the public index.)
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clean=(env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL -u PIP_NO_INDEX -u PIP_CONSTRAINT)
clean+=(-u UV_FIND_LINKS -u UV_EXTRA_INDEX_URL -u UV_INDEX -u UV_OFFLINE -u UV_CONSTRAINT)
clean+=(-u UV_OVERRIDE PIP_CONFIG_FILE=/dev/null UV_NO_CONFIG=1)
"${PYTHON:-python3}" -m venv "$work/env"
"${clean[@]}" "$work/env/bin/python" -m pip install --quiet --disable-pip-version-check \
  --retries 2 --timeout 60 --constraint constraints.txt uv

echo "resolving .[plots,dev,docs] from the public index"
status=0
# all extras at once: what resolves together resolves in each of its parts
"${clean[@]}" "$work/env/bin/uv" pip compile --quiet --python "$work/env/bin/python" \
  --cache-dir "$work/cache" --default-index "${PIP_INDEX_URL:-https://pypi.org/simple}" \
  --constraints constraints.txt --extra plots --extra dev --extra docs \
  --no-header --no-annotate --output-file "$work/found" pyproject.toml || status=$?
case $status in
  0) echo "resolved $(wc -l < "$work/found") packages" ;;
  1) echo "tools/resolve.sh: constraints.txt does not resolve from the public package index" >&2 ;;
  *) echo "tools/resolve.sh: the public package index cannot be reached" >&2 ;;
esac
exit "$status"
