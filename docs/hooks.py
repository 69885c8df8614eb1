"""Hooks of mkdocs: pictures of the papers' recipes, and prompts that are marked as prompts."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add `recipes/NAME/NAME.png` beside the page `recipes/NAME.md`."""
    for folder in sorted((ROOT / "recipes").iterdir()):
        picture = folder / f"{folder.name}.png"
        if picture.is_file():
            where = f"recipes/{picture.name}"
            files.append(File.generated(config, where, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    r"""Show an example with prompts as a session, so that its output looks like output.

    >>> on_page_markdown("```python\n>>> 1 + 1\n2\n```\n```python\nx = 1\n```")
    '```pycon\n>>> 1 + 1\n2\n```\n```python\nx = 1\n```'
    """
    return re.sub(r"^```python\n(?=>>> )", "```pycon\n", markdown, flags=re.MULTILINE)
