"""Print pip constraints for the oldest version of each dependency that pyproject.toml admits.

The development tools stay at the versions of constraints.txt: users do not install them.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def oldest(requirements: list[str]) -> dict[str, str]:
    """Return the version after each requirement's ``>=``, by normalized name."""
    found = {}
    for requirement in requirements:
        match = re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)", requirement)
        if match is None:
            raise ValueError(f"pyproject.toml: {requirement!r} has no lower bound")
        found[normalize(match[1])] = match[2]
    return found


def normalize(name: str) -> str:
    """Return the name as package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    """Print one constraint a line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    runtime = oldest(project["dependencies"] + extras["plots"])
    tools = oldest(extras["dev"])
    for name, version in runtime.items():
        print(f"{name}=={version}")
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        if normalize(name) in tools.keys() - runtime.keys():
            print(f"{name}=={version}")


if __name__ == "__main__":
    main()
