"""The long description of the package: README.md with absolute links."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    """Makes links of README.md absolute, to the repository that `project.urls` names."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the long description."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = absolute(text, metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute(text: str, repository: str) -> str:
    """Return Markdown whose relative links and pictures are those of a repository's main branch.

    >>> absolute("[a](a.md) ![b](b.svg) [c](#c)", "https://r.org/x")
    '[a](https://r.org/x/blob/main/a.md) ![b](https://r.org/x/raw/main/b.svg) [c](#c)'
    """

    def link(match: re.Match[str]) -> str:
        kind = "raw" if match[1].startswith("!") else "blob"
        return f"{match[1]}({repository}/{kind}/main/{match[2]})"

    text = re.sub(r"<!-- (--8<-- .*?|table .*?|end) -->\n+", "", text)
    return re.sub(r"(!?\[[^\]]*\])\((?!https?:|#)([^)]+)\)", link, text)
