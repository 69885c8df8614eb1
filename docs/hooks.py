"""Hooks of mkdocs: pictures of the papers' recipes, marked prompts, and the order of a search."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add `recipes/NAME/NAME.png` beside the page `recipes/NAME.md`."""
    for folder in sorted((ROOT / "recipes").iterdir()):
        picture = folder / f"{folder.name}.png"
        if picture.is_file():
            where = f"recipes/{picture.name}"
            files.append(File.generated(config, where, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **kwargs: Any) -> str:
    """Put guides and the first pages of sections before others in a search; mark the prompts.

    The page of questions only links to the pages that answer, which should come before it.
    """
    guide = page.parent is not None and page.parent.title == "Guides"
    if page.file.name == "index" or (guide and page.file.name != "questions"):
        page.meta["search"] = {"boost": 2}
    return sessions(markdown)


def sessions(markdown: str) -> str:
    r"""Return the text with examples with prompts as sessions, so that output looks like output.

    >>> sessions("```python\n>>> 1 + 1\n2\n```\n```python\nx = 1\n```")
    '```pycon\n>>> 1 + 1\n2\n```\n```python\nx = 1\n```'
    """
    return re.sub(r"^```python\n(?=>>> )", "```pycon\n", markdown, flags=re.MULTILINE)


def on_page_content(html: str, **kwargs: Any) -> str:
    r"""Keep an option in one line, and open a picture in its full size by a tap.

    Browsers break `--seed` behind its first hyphens. On a phone a wide picture is too small.

    >>> on_page_content("<p><code>--data.fold 2</code></p>")
    '<p><code><span class="option">--data.fold</span> 2</code></p>'
    >>> on_page_content('<p><img alt="Time" src="a.png" /></p>')
    '<p><a href="a.png"><img alt="Time" src="a.png" /></a></p>'
    """
    option = r'<span class="option">\1</span>'
    html = re.sub(r"(?<=<code>)(--[\w.-]+)(?=[^<>]*</code>)", option, html)
    return re.sub(r'(<img [^>]*src="([^"]+)"[^>]*>)(?!</a>)', r'<a href="\2">\1</a>', html)
