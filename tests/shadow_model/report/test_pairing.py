"""Paired errors against the textbook's, and only where windows are the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shadow_model.errors import DataError
from shadow_model.report.pairing import TOTAL, Windows, paired_errors, read_windows


def windows(seed: int = 0, shift: float = 0.0, num: int = 40, hard: float = 5.0) -> Windows:
    """Windows of which some are much harder, for every arm alike."""
    rng = np.random.default_rng(0)
    counts = np.tile([100, 50, 0, 10], (num, 1))
    difficulty = 4 + hard * rng.random((num, 4))
    noise = np.random.default_rng(seed).normal(0, 0.1, (num, 4))
    sums = (difficulty + noise + shift) * counts
    return Windows(np.arange(num) * 64, sums, counts, sums[:, ::-1], counts[:, ::-1], 64)


def test_equal_counts_give_the_error_of_a_mean_of_differences() -> None:
    proof, flat = windows(1), windows(2, shift=0.3)
    gaps = (flat.sums - proof.sums)[:, 0] / 100
    errors = paired_errors(proof, flat)
    # With equal counts the delta method is the textbook's formula; tolerance: float64 rounding.
    assert errors["text"] == pytest.approx(gaps.std(ddof=1) / np.sqrt(len(gaps)), rel=1e-9)
    assert set(errors) == {
        *(TOTAL, "text", "picture", "clip"),
        *("text->text", "span->band", "span->end"),
    }
    assert errors["span->end"] == errors["text"]


def test_pairing_removes_what_is_hard_for_both() -> None:
    proof, flat = windows(1), windows(2)
    spread = (proof.sums[:, 0] / 100).std(ddof=1) / np.sqrt(40)
    assert paired_errors(proof, flat)["text"] < spread / 5


@pytest.mark.parametrize(
    "other",
    [
        None,
        windows(num=39),
        replace(windows(), ctx_tokens=32),
        replace(windows(), starts=np.arange(40)),
        replace(windows(), counts=windows().counts + 1),
    ],
)
def test_other_windows_are_not_paired(other: Windows | None) -> None:
    assert paired_errors(windows(), other) == {}
    assert paired_errors(other, windows()) == {}


def test_one_window_has_no_error() -> None:
    assert paired_errors(windows(num=1), windows(num=1)) == {}


def test_windows_survive_the_disk(tmp_path: Path) -> None:
    path, kept = tmp_path / "heldout.npz", windows()
    assert read_windows(path) is None
    np.savez(path, **kept.__dict__)
    read = read_windows(path)
    assert read is not None
    assert np.array_equal(read.sums, kept.sums)
    assert read.ctx_tokens == 64


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"text"])
def test_unreadable_windows_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "heldout.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="held-out windows"):
        read_windows(path)


def test_missing_array_and_wrong_shape_are_refused(tmp_path: Path) -> None:
    path, kept = tmp_path / "heldout.npz", windows()
    np.savez(path, starts=kept.starts)
    with pytest.raises(DataError, match="sums"):
        read_windows(path)
    np.savez(path, **{**kept.__dict__, "sums": kept.sums[:, :2]})
    with pytest.raises(DataError, match="shape"):
        read_windows(path)
