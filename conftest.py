"""How pytest collects the doctests of the packages, each file of which may be named alone."""

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
PACKAGES = ("ltr", "recipes")


def pytest_collect_file(file_path: Path) -> None:
    """Import a module before pytest does, which would run many modules twice.

    pytest first imports the packages of a module, and then runs the file, even if the packages have
    imported it. Operators would be registered twice, and there would be two classes of one name.
    """
    if is_packaged(file_path) and file_path.suffix == ".py" and file_path.stem[:2] != "__":
        with suppress(Exception):  # pytest imports it again, and reports the error
            import_module(".".join(file_path.relative_to(ROOT).with_suffix("").parts))


def pytest_pycollect_makeitem(collector: Any) -> list[Any] | None:
    """Collect no function of the packages as a test: `ltr test` is a function called `test`."""
    return [] if is_packaged(collector.path) else None


def is_packaged(path: Path) -> bool:
    """Return whether a file is in one of the packages."""
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
