"""Files that other processes watch: each is replaced atomically, so that no process reads half of it, and is readable only by this user."""

import json
from pathlib import Path
from typing import Any


def put(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.touch(mode=0o600)
    new.write_text(text)
    new.replace(path)


def put_yaml(path: Path, content: dict[str, Any], end: str = "") -> None:
    """Writes JSON, which is also YAML."""
    put(path, json.dumps(content, indent=2) + "\n" + end)
