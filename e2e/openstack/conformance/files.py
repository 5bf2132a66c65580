"""Files that other processes follow: each changes in one step, so that nobody reads half of it, and is ours alone to read."""

import json
from pathlib import Path
from typing import Any


def put(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.touch(mode=0o600)
    new.write_text(text)
    new.replace(path)


def put_yaml(path: Path, content: dict[str, Any], end: str = "") -> None:
    """As JSON, which is YAML, too."""
    put(path, json.dumps(content, indent=2) + "\n" + end)
