"""The session of the page on the command line: each command is run, and prints what the page says.

Numbers may differ from machine to machine, so only the words are compared.
`python -m tests.cli.test_commands_page` writes the page's outputs again.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
LTR = "import sys; from ltr.cli import main; sys.exit(main(sys.argv[1:]))"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@contextmanager
def session(folder: Path) -> Iterator["Session"]:
    code = PAGE.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    found = Session(folder)
    try:
        found.python(code)
        yield found
    finally:
        for process in found.running:
            process.terminate()
            process.wait()


class Session:
    """Runs the commands of a page in a folder, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.running = folder, list[subprocess.Popen]()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        root = str(PAGE.parents[1])
        self.environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": root}

    def python(self, code: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.stdout

    def run(self, command: str) -> str:
        """Return what a command prints, stderr among it."""
        words = shlex.split(command.replace("8000", str(self.port)))
        if words[0] == "ltr" and words[-1] == "&":
            arguments = [sys.executable, "-c", LTR, *words[1:-1]]
            silent: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen(arguments, cwd=self.folder, env=self.environment, **silent)
            self.running.append(process)
            self._wait(process)
            return ""
        if words[0] == "ltr":
            return self.python(LTR, *words[1:])
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout

    def _wait(self, process: subprocess.Popen) -> None:
        for _ in range(600):
            assert process.poll() is None
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError("the service does not listen")


def shortened(text: str) -> str:
    """Replace the folder of the package, and leave out what only a machine's first run prints."""
    text = text.replace("ltr: compiling, once, which takes up to a minute\n", "")
    return text.replace(str(PAGE.parents[1]), "...")


def words(text: str) -> list[str]:
    """The words of a text, with each number as #, and without rules and empty lines."""
    text = re.sub(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]\d+)?", "#", text)
    lines = (re.sub(r"[\s─━-]+", " ", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


@pytest.mark.slow  # a process for each of twenty commands, of which three train
def test_the_session(tmp_path):
    pytest.importorskip("shap")
    pytest.importorskip("uvicorn")
    text = PAGE.read_text("utf-8")
    with session(tmp_path) as running:
        for block in BLOCK.findall(text):
            for command, output in COMMAND.findall(block):
                assert (command, words(shortened(running.run(command)))) == (command, words(output))


def test_every_command_is_on_the_page():
    from ltr.cli import _COMMANDS

    text = PAGE.read_text("utf-8")
    assert [name for name in _COMMANDS if f"$ ltr {name} " not in text.replace("\n", " \n")] == []


def write() -> None:
    with TemporaryDirectory() as folder, session(Path(folder)) as running:

        def ran(block: re.Match[str]) -> str:
            lines = []
            for command, _ in COMMAND.findall(block[1]):
                output = "\n".join(x.rstrip() for x in running.run(command).strip("\n").split("\n"))
                lines += [f"$ {command}", *([shortened(output)] if output.strip() else [])]
            return "```console\n" + "\n".join(lines) + "\n```"

        PAGE.write_text(BLOCK.sub(ran, PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    write()
