#!/usr/bin/env bash
# Install and test the last commit on other Pythons, and with the oldest dependencies admitted.
#
#   tools/versions.sh                                  # all of the below, with the whole `make test`
#   tools/versions.sh python3.13                       # one Python, with the pins of constraints.txt
#   tools/versions.sh oldest:python3.11                # the oldest versions that pyproject.toml admits
#   tools/versions.sh oldest:python3.11 -- -n 1 tests/losses tests/cli   # arguments for pytest
#
# Each environment is made under TMPDIR and removed again. PyTorch from the public index brings
# CUDA: allow 10 GB of disk and a download of 3 GB for each. uv installs where it is on the PATH,
# which takes a tenth of pip's time. Real data is read from LTR_DATA.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

whiches=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  whiches+=("$1")
  shift
done
[ "${1:-}" != -- ] || shift
[ ${#whiches[@]} -gt 0 ] || whiches=(python3.12 python3.13 oldest:python3.11)
tests=("$@")
[ ${#tests[@]} -gt 0 ] || tests=(-n 2 --dist worksteal)

export LTR_DATA=${LTR_DATA:-$root/../shared/data}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export UV_CACHE_DIR=$work/uv
failed=0
summary=()

install() { # install PYTHON ARGUMENTS...
  if command -v uv > /dev/null; then
    uv pip install --quiet --python "$@"
  else
    "$1" -m pip install --quiet --disable-pip-version-check "${@:2}"
  fi
}

for which in "${whiches[@]}"; do
  python=${which#oldest:}
  rm -rf "$work/tree" "$work/env" "$work/numba"
  mkdir "$work/tree"
  git archive HEAD | tar -x -C "$work/tree" # edits made meanwhile do not mix in
  cd "$work/tree"
  cp constraints.txt "$work/constraints.txt"
  warnings=()
  if [ "$which" != "$python" ]; then
    "$python" tools/oldest.py > "$work/constraints.txt"
    warnings=(-o filterwarnings=default) # old versions warn of each other; that is not our error
  fi
  echo "== $which"
  "$python" -m venv "$work/env"
  run=$work/env/bin/python
  if ! install "$run" --constraint "$work/constraints.txt" --editable '.[plots,dev]'; then
    summary+=("$which: does not install")
    failed=1
    cd "$root"
    continue
  fi
  versions=$("$run" -c 'import platform, importlib.metadata as m
names = "torch lightning torchmetrics numpy scipy numba pandas pyarrow scikit-learn".split()
print(f"Python {platform.python_version()},", ", ".join(f"{n} {m.version(n)}" for n in names))')
  echo "$versions"
  rc=0
  NUMBA_CACHE_DIR="$work/numba" "$run" -m pytest -q "${warnings[@]}" "${tests[@]}" 2>&1 \
    | tee "$work/log" || rc=$?
  [ $rc -eq 0 ] || failed=1
  summary+=("$which: $versions: $(tail -n 1 "$work/log")")
  cd "$root"
done

echo "== summary"
printf '%s\n' "${summary[@]}"
exit $failed
