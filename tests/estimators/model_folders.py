"""The files of a model's folder, whose names contain digests of their content."""

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from ltr.config.folder import with_digest


def names_in(folder: Path) -> list[str]:
    """The sorted names of a folder's files, without digests."""
    return sorted(re.sub(r"-[0-9a-f]{16}\.", ".", path.name) for path in folder.iterdir())


def file_in(folder: Path, name: str) -> Path:
    """The path of `model.safetensors`, `ranker-1.txt` or `config.json`; there must be one file."""
    stem, _, suffix = name.partition(".")
    digest = "[0-9a-f]" * 16
    [path] = [folder / name] if stem == "config" else folder.glob(f"{stem}-{digest}.{suffix}")
    return path


def with_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace files of a model and their digests, as whoever writes a folder could."""
    config = folder / "config.json"
    content = json.loads(config.read_text())
    for name, data in files.items():
        path = file_in(folder, name)
        new = re.sub("-[0-9a-f]{16}", f"-{sha256(data).hexdigest()[:16]}", path.name)
        path.unlink()
        path.with_name(new).write_bytes(data)
        content["files"] = [new if one == path.name else one for one in content["files"]]
    config.write_text(json.dumps(with_digest(content)))
