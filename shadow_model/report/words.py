"""Numbers as a person reads them. All are pure text: no markup."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

NONE = "–"
ARM_NAMES = {"proof": "looped core", "flat": "flat control"}
_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_UNITS = {"_s": "s", "_bytes": "B", "_frac": "", "_db": "dB", "_bits": "bits", "_nats": "nats"}


def quantity(value: float | None, unit: str = "") -> str:
    """Write three figures with an SI prefix: 1234567 -> "1.23 M"."""
    if value is None:
        return NONE
    for size, prefix in _STEPS:
        if abs(value) >= size * 0.9995:
            return f"{_three(value / size)} {prefix}{unit}"
    return f"{_three(value)} {unit}".strip()


def _three(value: float) -> str:
    if float(value).is_integer() and abs(value) < 1000:
        return str(int(value))
    return (
        f"{value:.2f}"
        if abs(value) < 9.995
        else f"{value:.1f}"
        if abs(value) < 99.95
        else f"{value:.0f}"
    )


def duration(seconds: float | None) -> str:
    """Write a time in its two largest units: 3725 -> "1 h 2 min"."""
    if seconds is None:
        return NONE
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds >= 0.95 else f"{seconds * 1000:.0f} ms"
    minutes, rest_s = divmod(round(seconds), 60)
    hours, rest_min = divmod(minutes, 60)
    days, rest_h = divmod(hours, 24)
    if days:
        return f"{days} d {rest_h} h"
    return f"{hours} h {rest_min} min" if hours else f"{minutes} min {rest_s} s"


def size(num_bytes: float | None) -> str:
    """Write a size in binary units: 1536 -> "1.50 KiB"."""
    if num_bytes is None:
        return NONE
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if num_bytes >= 1024**power:
            return f"{_three(num_bytes / 1024**power)} {unit}"
    return f"{num_bytes:.0f} B"


def loss(value: float | None, standard_error: float | None = None) -> str:
    """Write nats a token to three places, with the standard error where there is one."""
    if value is None:
        return NONE
    return f"{value:.3f}" + (f" ± {standard_error:.3f}" if standard_error else "")


def change(value: float | None) -> str:
    """Write a difference with its sign: 0.5 -> "+0.500", and a true minus."""
    return NONE if value is None else f"{value:+.3f}".replace("-", "−")


def figure(name: str, value: Any) -> str:
    """Write a receipt's figure by the unit that its name ends in."""
    if value is None or isinstance(value, bool):
        return {None: NONE, True: "yes", False: "no"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(figure(name, item) for item in value)
    if not isinstance(value, int | float):
        return str(value)
    first, last = name.partition(".")[0], name.rpartition(".")[2]
    if last.endswith("_bytes") or last == "bytes":
        return size(value)
    if (last.endswith("_s") and not last.endswith("per_s")) or first == "seconds":
        return duration(value)
    fits = (text for end, text in _UNITS.items() if last.endswith(end))
    unit = "" if last.endswith("per_s") else next(fits, "")
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return f"{number} {unit}".strip()


def spoken(name: str) -> str:
    """Turn a figure's name into words: "rows.min_distance_s" -> "rows: min distance"."""
    for end in _UNITS:
        name = name if name.endswith("_per_s") else name.removesuffix(end)
    return re.sub(r"[_\s]+", " ", name.replace(".", ": ")).strip()


def flatten(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of nested figures, in their order."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
