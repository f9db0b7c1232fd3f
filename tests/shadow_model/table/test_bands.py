import numpy as np
import pytest

from shadow_model.errors import DataError
from shadow_model.table.bands import band_codes
from shadow_model.table.layout import BAND_ROWS
from shadow_model.table.measure import distance_agreement
from shadow_model.table.repair import pack_rows


@pytest.fixture(scope="module")
def codebook() -> np.ndarray:
    """Sums of two centres, as a codec makes them."""
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((64, 12)), 0.4 * rng.standard_normal((64, 12))
    return (first[:, None] + second[None]).reshape(-1, 12).astype(np.float32)


def test_codes_follow_the_distance_of_the_codebook(codebook: np.ndarray) -> None:
    codes = band_codes("video", codebook, seed=0)
    assert codes.bits.shape == codes.margins.shape == (4096, 512)
    assert abs(codes.bits.mean(axis=0) - 0.5).max() <= 1 / 4096  # cut at the median
    agreement = distance_agreement(pack_rows(codes.bits), codebook, 20_000, seed=0)
    assert agreement is not None
    assert agreement > 0.4  # random codes: 0 +- 0.01


def test_near_codes_share_more_bits_than_far_ones(codebook: np.ndarray) -> None:
    bits = band_codes("video", codebook, seed=0).bits
    distances = ((codebook - codebook[5]) ** 2).sum(axis=1)
    order = np.argsort(distances)
    shared = (bits == bits[5]).sum(axis=1)[order]
    assert shared[1:20].mean() > 300
    assert abs(shared[2000:].mean() - 256) < 30


def test_scale_of_the_codebook_does_not_matter(codebook: np.ndarray) -> None:
    one, other = (band_codes("video", codebook * s, seed=0).bits for s in (1, 1024))
    assert (one == other).mean() > 0.999  # rounding of float32 may turn bits at the threshold


def test_rows_beyond_the_codebook_are_random(codebook: np.ndarray) -> None:
    codes = band_codes("image", codebook, seed=0)
    assert codes.bits.shape == (BAND_ROWS["image"], 512)
    assert codes.margins[: len(codebook)].any()
    assert not codes.margins[len(codebook) :].any()


def test_without_a_codebook_bands_differ() -> None:
    audio, video = band_codes("audio", None, seed=0), band_codes("video", None, seed=0)
    assert (audio.bits[:4096] == video.bits).mean() == pytest.approx(0.5, abs=0.01)


def test_constant_codebook_gives_finite_margins() -> None:
    codes = band_codes("video", np.ones((10, 3), np.float32), seed=0)
    assert np.isfinite(codes.margins).all()


@pytest.mark.parametrize(
    ("codebook", "found"),
    [
        (np.zeros((4097, 3), np.float32), "4097"),
        (np.zeros((0, 3), np.float32), r"\(0, 3\)"),
        (np.zeros(5, np.float32), r"\(5,\)"),
        (np.zeros((5, 3), np.int64), "int64"),
        (np.array([[0.0], [np.nan]], np.float32), "row 1"),
    ],
)
def test_unusable_codebook_is_refused(codebook: np.ndarray, found: str) -> None:
    with pytest.raises(DataError, match=rf"codebook of video.*{found}"):
        band_codes("video", codebook, seed=0)
