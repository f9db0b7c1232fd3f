"""Errors a user can act on: each names the place, what must hold, what was found and what to do.

What was found may come from a hostile file: it is cut to a length that fits a screen, signs that
would steer a terminal are spelled out, and access tokens are blotted out.
"""

from shadow_model.redaction import redacted

_MAX_FOUND = 2000
_SHOWN_FOUND = 900


class ShadowError(Exception):
    """Base of every error that this project raises on purpose.

    Args:
        where: The file, field or argument at fault.
        must: What must hold there.
        found: The value found instead.
        fix: What the user can do.
    """

    def __init__(self, where: object, must: str, found: object, fix: str) -> None:
        self.where, self.must, self.found, self.fix = map(_shown, (where, must, found, fix))
        super().__init__(self.where, self.must, self.found, self.fix)

    def __str__(self) -> str:
        return f"{self.where}: must {self.must}; found {self.found}. {self.fix}"


class ConfigError(ShadowError):
    """A recipe, a field or a combination of fields that cannot be run."""


class LayoutError(ShadowError):
    """A table, a layout or a digest that does not fit the data used with it."""


class DataError(ShadowError):
    """A raw file, shard or bin that cannot be read as what it should be."""


class CheckpointError(ShadowError):
    """A checkpoint that is not whole, or not of this model."""


class NumericsError(ShadowError):
    """A non-finite loss or gradient, or a failed numerical check."""


def _shown(part: object) -> str:
    text = redacted(str(part))
    if len(text) > _MAX_FOUND:
        text = f"{text[:_SHOWN_FOUND]} ... {text[-_SHOWN_FOUND:]}"
    return "".join(c if c.isprintable() or c in "\n\t" else _spelled(c) for c in text)


def _spelled(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
