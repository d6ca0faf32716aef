"""Manifests: small JSON files that say which files belong together, with their own checksum."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyg_incremental.call.checked import Checked
from pyg_incremental.encoding.whole_file import checksum_of, written_whole

NAME = "manifest.json"


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest whole: from here on it counts.

    Args:
        folder: Where to.
        manifest: Plain values, with the `format`.
    """
    with written_whole(folder / NAME) as file:
        content = {**manifest, "checksum": checksum_of(manifest)}
        file.write(json.dumps(content, indent=1).encode())


def read_manifest(folder: Path, version: int, checked: Checked, advice: str) -> dict[str, Any]:
    """Read a manifest.

    Args:
        folder: Where it is.
        version: The format that it has to have.
        checked: What errors begin with.
        advice: What to do if there is none.

    Raises:
        ValueError: What `checked` raises, if there is none, it is damaged, or of another format.
    """
    try:
        manifest = json.loads((folder / NAME).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise checked.refuse(
            f"there is no manifest that can be read ({type(error).__name__}: {error})", advice
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != version:
        raise checked.refuse(f"'{NAME}' is not a manifest of format {version}", advice)
    if manifest.pop("checksum", None) != checksum_of(manifest):
        raise checked.refuse(f"'{NAME}' is damaged: it does not match its checksum", advice)
    return manifest
