"""Print the CPU seconds of a command beside those of a fixed loop, for runs of the tests.

    python tools/test_cost.py                                    # `make test`
    python tools/test_cost.py .venv/bin/python -m pytest tests/losses

The seconds are those of all processes that the command starts and waits for. Other work on the
machine makes each of them slower, but the loop too: it runs before and after the command, and the
ratio is of the mean of both.
"""

import resource
import subprocess
import sys
import time

LOOP = "x = 0\nfor i in range(10**7): x += i * i"


def loop() -> float:
    """Return the CPU seconds of the loop, with global names, as a program of its own has them."""
    begin = time.process_time()
    exec(LOOP, {})
    return time.process_time() - begin


def main() -> int:
    """Run the command, print what it cost, and return its exit code."""
    before = loop()
    code = subprocess.run(sys.argv[1:] or ["make", "test"], check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    after = loop()
    seconds = used.ru_utime + used.ru_stime
    print(
        f"{seconds:.0f} CPU seconds ({used.ru_utime:.0f} user, {used.ru_stime:.0f} system), "
        f"of a loop {before:.2f} and {after:.2f}: {seconds / (before + after) * 2:.0f} loops"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
