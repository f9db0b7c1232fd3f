"""What every codec keeps: whole files, versions, repeatability, errors that name what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shadow_model.data.codec import CODEC_FORMAT, psnr
from shadow_model.data.picture import PictureCodec, PictureConfig
from shadow_model.data.sound import SoundCodec
from shadow_model.errors import ConfigError, DataError

CONFIG = PictureConfig(side=16, first=8, second=4)


def pictures(count: int, seed: int = 0) -> list[np.ndarray]:
    """Smooth coloured waves, no two alike."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:16, 0:16][..., None] / 16
    waves = rng.uniform(-6, 6, (count, 2, 3))
    phases = rng.uniform(0, 6, (count, 3))
    found = [
        0.5 + 0.5 * np.sin(y * w[0] + x * w[1] + p) for w, p in zip(waves, phases, strict=True)
    ]
    return [picture.astype(np.float32) for picture in found]


@pytest.fixture(scope="module")
def codec() -> PictureCodec:
    return PictureCodec.fit(pictures(20), CONFIG, seed=0)


def test_loaded_codec_equals_the_saved_one(codec: PictureCodec, tmp_path: Path) -> None:
    codec.save(tmp_path)

    loaded = PictureCodec.load(tmp_path)

    item = pictures(1, seed=9)[0]
    assert loaded.config == codec.config
    np.testing.assert_array_equal(loaded.encode(item), codec.encode(item))
    np.testing.assert_array_equal(
        loaded.decode(codec.encode(item)), codec.decode(codec.encode(item))
    )
    np.testing.assert_array_equal(loaded.codebook, codec.codebook)


def test_same_seed_writes_the_same_bytes(codec: PictureCodec, tmp_path: Path) -> None:
    codec.save(tmp_path / "a")
    PictureCodec.fit(pictures(20), CONFIG, seed=0).save(tmp_path / "b")
    PictureCodec.fit(pictures(20), CONFIG, seed=1).save(tmp_path / "c")

    a, b, c = ((tmp_path / name / "picture.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_fit_does_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np; from pathlib import Path\n"
        "from shadow_model.data.picture import PictureCodec, PictureConfig\n"
        "items = list(np.random.default_rng(0).random((40, 64, 64, 3), np.float32))\n"
        "config = PictureConfig(refinements=1, first=32, second=16)\n"
        "codec = PictureCodec.fit(items, config, 0); codec.save(Path(sys.argv[1]))\n"
        "np.save(sys.argv[1] + '/codes.npy', np.concatenate([codec.encode(i) for i in items]))\n"
    )
    for threads in "12":
        environment = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "PATH": ""}
        command = [sys.executable, "-c", code, str(tmp_path / threads)]
        root = Path(__file__).parents[3]
        subprocess.run(command, check=True, cwd=root, env=environment)

    for name in ("picture.safetensors", "codes.npy"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_fit_reads_evenly_spaced_items_of_a_lazy_sequence() -> None:
    class Lazy(list[np.ndarray]):
        read: list[int]

        def __getitem__(self, index):  # type: ignore[no-untyped-def, override]
            self.read.append(index)
            return super().__getitem__(index)

    lazy = Lazy(pictures(20))
    lazy.read = []

    PictureCodec.fit(lazy, CONFIG.replace(fit_items=5), seed=0)

    assert lazy.read == [0, 4, 8, 12, 16]


def test_codes_stay_in_range_and_the_codebook_has_a_row_for_each(codec: PictureCodec) -> None:
    codes = np.concatenate([codec.encode(item) for item in pictures(30, seed=4)])

    assert codes.dtype == np.int32
    assert codes.min() >= 0
    assert codes.max() < len(codec.codebook) == CONFIG.num_codes == 32


@pytest.mark.parametrize(
    "codes",
    [np.array([], int), np.array([-1] * 16), np.array([32] * 16), np.zeros((4, 4), int)],
    ids=["empty", "negative", "too large", "not a row"],
)
def test_decode_refuses_what_are_not_codes(codec: PictureCodec, codes: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"whole numbers in \[0, 32\)"):
        codec.decode(codes)


def test_decode_refuses_a_part_of_a_picture(codec: PictureCodec) -> None:
    with pytest.raises(DataError, match="fill a grid of 4 x 4; found 15 codes"):
        codec.decode(np.zeros(15, np.int32))


@pytest.mark.parametrize("items", [[], [np.ones((16, 16, 3), np.float32)] * 3])
def test_fit_refuses_too_few_distinct_vectors(items: list[np.ndarray]) -> None:
    with pytest.raises(DataError, match=r"at least 9 distinct vectors.*Add more pictures"):
        PictureCodec.fit(items, CONFIG, seed=0)


def test_load_refuses_another_format_version(codec: PictureCodec, tmp_path: Path) -> None:
    codec.save(tmp_path)
    change_record(tmp_path, format=CODEC_FORMAT + 1)

    with pytest.raises(DataError, match=f"found a picture codec of format {CODEC_FORMAT + 1}"):
        PictureCodec.load(tmp_path)


def test_load_refuses_another_kind(codec: PictureCodec, tmp_path: Path) -> None:
    codec.save(tmp_path)
    (tmp_path / "picture.json").rename(tmp_path / "sound.json")

    with pytest.raises(DataError, match="record of a sound codec"):
        SoundCodec.load(tmp_path)


def test_load_refuses_a_config_field_it_does_not_know(codec: PictureCodec, tmp_path: Path) -> None:
    codec.save(tmp_path)
    change_record(tmp_path, config={"sides": 16})

    with pytest.raises(ConfigError, match="did you mean 'side'"):
        PictureCodec.load(tmp_path)


def test_load_refuses_altered_and_cut_arrays(codec: PictureCodec, tmp_path: Path) -> None:
    codec.save(tmp_path)
    path = tmp_path / "picture.safetensors"
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(DataError, match=r"picture.safetensors.*sha256"):
        PictureCodec.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}"])
def test_load_refuses_a_damaged_record(codec: PictureCodec, tmp_path: Path, content: bytes) -> None:
    codec.save(tmp_path)
    (tmp_path / "picture.json").write_bytes(content)

    with pytest.raises(DataError, match=r"picture.json"):
        PictureCodec.load(tmp_path)


def test_load_names_an_absent_file(codec: PictureCodec, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"picture.json.*No such file"):
        PictureCodec.load(tmp_path)
    codec.save(tmp_path)
    (tmp_path / "picture.safetensors").unlink()
    with pytest.raises(DataError, match=r"picture.safetensors.*No such file"):
        PictureCodec.load(tmp_path)


def test_psnr_of_a_known_error() -> None:
    # an error of 0.1 everywhere is 20 dB; float32 holds 0.1 to 1e-8
    assert psnr(np.zeros((2, 2), "f4"), np.full((2, 2), 0.1, "f4")) == pytest.approx(20, abs=1e-5)


def change_record(folder: Path, **changes: object) -> None:
    path = folder / "picture.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
