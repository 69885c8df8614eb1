"""A hook of mkdocs: the pictures of the papers' recipes come from their folders."""

from pathlib import Path

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
