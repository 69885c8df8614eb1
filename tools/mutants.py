"""Measure what the tests see: change the code in one place, and ask whether a test fails.

Each mutant swaps a comparison, changes a sign or a constant, or drops a statement of one package.
The fast tests of that package run against it until the first failure. A mutant that no test
notices has survived: it is the same program in other words, or the tests are blind there.

    python tools/mutants.py --output runs/mutants.json
    python tools/mutants.py --packages losses --number 12 --seed 1

The same code and seed give the same mutants, so that two states of the tests can be compared.
The mutated files lie in a copy of the repository.

Most tests do not reach the changed line. With the data of a run that noted which test reached which
line, only those that reached it run, which takes a tenth of the time; this needs `pytest-cov`:

    python -m pytest --cov=ltr --cov-context=test
    python tools/mutants.py --reached .coverage --output runs/mutants.json

`--slow` asks the slow tests too about the mutants that survived the fast ones.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kernels", "operators", "losses", "metrics", "datasets", "estimators")
COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",  # codespell:ignore
}
SIGNS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
LIMIT = 1200  # seconds; a mutant that never ends is noticed too


@dataclass(frozen=True)
class Mutant:
    """A change of one place: the text between two offsets of a file, in bytes, becomes `new`."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str


def mutants(file: Path) -> Iterator[Mutant]:
    """Yield all mutants of a file, but for those of annotations, docstrings and messages."""
    text = file.read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def between(first: int, column: int, last: int, end_column: int, new: str) -> Mutant:
        start, end = starts[first - 1] + column, starts[last - 1] + end_column
        old = text[start:end].decode()
        return Mutant(str(file.relative_to(ROOT)), first, start, end, old, new)

    def of(node: ast.expr | ast.stmt, new: str) -> Mutant:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return between(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, new)

    def infix(left: ast.expr, right: ast.expr, new: str) -> Iterator[Mutant]:
        assert left.end_lineno is not None
        assert left.end_col_offset is not None
        found = between(
            left.end_lineno, left.end_col_offset, right.lineno, right.col_offset, f" {new} "
        )
        if not set(found.old) & set("()#\n"):  # else the text between is more than the operator
            yield found

    skipped: set[ast.AST] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise):
            skipped |= set(ast.walk(node))
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if annotation is not None:
                skipped |= set(ast.walk(annotation))
        if node in skipped:
            continue
        match node:
            case ast.Compare(left=left, ops=[operation], comparators=[right]):
                yield from infix(left, right, COMPARISONS[type(operation)])
            case ast.BinOp(left=left, op=operation, right=right) if type(operation) in SIGNS:
                yield from infix(left, right, SIGNS[type(operation)])
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                yield of(node, ast.unparse(operand))
            case ast.Constant(value=bool(value)):
                yield of(node, str(not value))
            case ast.Constant(value=int(value) | float(value)):
                yield of(node, repr(value + 1))
            case ast.Expr(value=ast.Call()) | ast.AugAssign():
                yield of(node, "pass")
            case ast.If(test=test):
                yield of(test, f"not ({ast.unparse(test)})")


def draw(package: str, number: int, seed: int) -> list[Mutant]:
    """Return mutants of a package, without replacement, at most one of each line."""
    files = sorted((ROOT / "ltr" / package).rglob("*.py"))
    every = [mutant for file in files for mutant in mutants(file)]
    random.Random(f"{seed} {package}").shuffle(every)
    one_a_line = {(mutant.file, mutant.line): mutant for mutant in reversed(every)}
    return [mutant for mutant in every if one_a_line[mutant.file, mutant.line] == mutant][:number]


def reaching(data: Path, mutant: Mutant, package: str) -> list[str] | None:
    """Return the tests of a package that reach a mutant, or None if all may.

    A test file is taken whole where a fixture reaches it, since its other tests may use the result.
    Of lines that numba compiles or that run at import, no test is noted, so all may.
    """
    from coverage import CoverageData  # with pytest-cov: no other tool needs it

    known = CoverageData(str(data))
    known.read()
    measured = next((f for f in known.measured_files() if f.endswith(f"/{mutant.file}")), None)
    if measured is None:
        return None
    by_line = known.contexts_by_lineno(measured)
    statements = [
        node
        for node in ast.walk(ast.parse((ROOT / mutant.file).read_bytes()))
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    inner = max(statements, key=lambda node: node.lineno)
    body = getattr(inner, "body", None)
    last = body[0].lineno - 1 if body else inner.end_lineno or inner.lineno
    contexts = {one for line in range(inner.lineno, last + 1) for one in by_line.get(line, [])}
    folders = f"tests/{package}/", f"ltr/{package}/"
    tests = {one.rpartition("|")[::2] for one in contexts if one.startswith(folders)}
    whole = {test.partition("::")[0] for test, phase in tests if phase != "run"}
    single = {test for test, _ in tests if test.partition("::")[0] not in whole}
    return None if not contexts or "" in contexts else sorted(whole) + sorted(single)


def run_tests(
    package: str, copy: Path, scratch: Path, tests: list[str] | None = None, marks: str = "not slow"
) -> subprocess.CompletedProcess[str]:
    """Run tests until the first failure: the fast ones of a package, or those that are named."""
    shutil.rmtree(scratch, ignore_errors=True)  # compiled code may contain another mutant's
    environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    environment.setdefault("LTR_DATA", str(ROOT.parent / "shared" / "data"))
    if package == "kernels":
        environment["NUMBA_CACHE_DIR"] = str(scratch)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", marks]
    if tests is None:
        command += [f"ltr/{package}", f"tests/{package}"]
    else:
        (copy / "chosen.txt").write_text("\n".join(tests) + "\n")
        command += ["@chosen.txt"]
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT
    )


def outcome(
    mutant: Mutant, package: str, copy: Path, scratch: Path, tests: list[str] | None, marks: str
) -> dict[str, object]:
    """Run tests against a mutant, and return how they ended."""
    if tests == []:
        return {"killed": False, "by": "", "seconds": 0.0}
    target = copy / mutant.file
    text = target.read_bytes()
    target.write_bytes(text[: mutant.start] + mutant.new.encode() + text[mutant.end :])
    before = time.monotonic()
    try:
        ended = run_tests(package, copy, scratch, tests, marks)
        if "ERROR: not found" in ended.stderr:
            sys.exit(f"the tests are others than those of the data:\n{ended.stderr}")
        killed, output = ended.returncode not in (0, 5), ended.stdout  # 5: no test has the mark
    except subprocess.TimeoutExpired:
        killed, output = True, "timeout"
    finally:
        target.write_bytes(text)
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    by = failed[0] if failed else output[-200:] if killed else ""
    return {"killed": killed, "by": by, "seconds": round(time.monotonic() - before, 1)}


def main() -> None:
    """Run the mutants of each package, and print and write which of them were killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", nargs="+", default=PACKAGES, choices=PACKAGES)
    parser.add_argument("--number", type=int, default=12, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output", type=Path, help="a JSON file; what stands there is not run again"
    )
    parser.add_argument("--reached", type=Path, help="which test reaches which line: see above")
    parser.add_argument("--slow", action="store_true", help="ask the slow tests about survivors")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    options = parser.parse_args()
    known = (
        json.loads(options.output.read_text()) if options.output and options.output.exists() else []
    )
    done = {(row["file"], row["start"], row["new"]): row for row in known}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "ltr"
        ignored = shutil.ignore_patterns(".git", ".venv", "runs", "site", "dist", "__pycache__")
        shutil.copytree(ROOT, copy, ignore=ignored)
        for package in options.packages:
            rows = []
            for mutant in draw(package, options.number, options.seed):
                key = mutant.file, mutant.start, mutant.new
                if options.list:
                    print(f"{mutant.file}:{mutant.line}: {mutant.old!r} -> {mutant.new!r}")
                    continue
                tests = None
                if options.reached and key not in done:
                    tests = reaching(options.reached, mutant, package)
                if key not in done:
                    if not rows and not options.reached:
                        unchanged = run_tests(package, copy, Path(folder) / "numba")
                        if unchanged.returncode:
                            sys.exit(f"the tests fail without a mutant:\n{unchanged.stdout}")
                    result = outcome(
                        mutant, package, copy, Path(folder) / "numba", tests, "not slow"
                    )
                    done[key] = {"package": package} | asdict(mutant) | result
                    if options.output:
                        options.output.write_text(json.dumps(list(done.values()), indent=1) + "\n")
                row = done[key]
                if options.slow and not row["killed"] and "slow" not in row:
                    row["slow"] = outcome(
                        mutant, package, copy, Path(folder) / "numba", None, "slow"
                    )
                    if options.output:
                        options.output.write_text(json.dumps(list(done.values()), indent=1) + "\n")
                rows.append(row)
                word = "killed  " if row["killed"] else "survived"
                change = f"{row['old']!r} -> {row['new']!r}"
                print(f"{word} {row['file']}:{row['line']} {change}  {row['by']}", flush=True)
            if rows:
                print(f"{package}: {sum(row['killed'] for row in rows)} of {len(rows)} killed")
                if options.slow:
                    late = sum(row["slow"]["killed"] for row in rows if "slow" in row)
                    print(f"{package}: {late} more by the slow tests")


if __name__ == "__main__":
    main()
