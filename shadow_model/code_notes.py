"""Digests of the functions of every module that a stage was built with, by the module's digest.

They only make a reason more precise ("pack_bins changed" for "the module changed"), so a note that
is absent or damaged is no fault.
"""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from shadow_model.fingerprint import module_parts


class CodeNotes:
    """A folder of notes.

    Args:
        folder: Made on first use.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, code: Mapping[str, str]) -> None:
        """Note the parts of modules that are not noted yet.

        Args:
            code: Module -> its digest; a module that was edited since has no note.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for module, digest in code.items():
            path = self._folder / f"{digest}.json"
            if not path.exists() and (parts := module_parts(module, digest)):
                temporary = path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
                temporary.write_text(json.dumps(parts))
                temporary.replace(path)

    def read(self, digest: str) -> dict[str, str]:
        """Return {function or class: digest} of a module; empty where there is no note."""
        try:
            parts = json.loads((self._folder / f"{digest}.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return parts if isinstance(parts, dict) else {}
