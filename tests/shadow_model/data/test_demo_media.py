"""The embedded items: enough of each kind, honestly captioned, grouped, and codable as well as they
should be. Needs the extra `demo`, as the suite does.
"""

import importlib.util
import subprocess
import sys
from collections import Counter
from importlib.machinery import ModuleSpec
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from shadow_model.data.demo_media import demo_media, demo_photographs
from shadow_model.data.media import MEDIA_KINDS, MediaConfig, MediaItem, fit_codec, measure
from shadow_model.errors import ConfigError

CONFIG = MediaConfig()


@pytest.fixture(scope="module")
def items() -> list[MediaItem]:
    return list(demo_media(CONFIG))


def test_every_kind_has_enough(items: list[MediaItem]) -> None:
    counts = Counter(item.kind for item in items)
    groups = Counter(kind for kind, _ in {(item.kind, item.group) for item in items})

    # the least that leaves training and held-out groups of every kind
    assert counts["picture"] >= 1000
    assert counts["sound"] >= 1000
    assert counts["clip"] >= 300
    assert min(groups[kind] for kind in MEDIA_KINDS) >= 40


def test_items_fit_their_codecs(items: list[MediaItem]) -> None:
    for item in items:
        assert item.array.dtype == np.float32
        assert np.isfinite(item.array).all()
        if item.kind == "sound":
            assert 0 < len(item.array) <= CONFIG.sound.max_seconds * 16_000
        else:
            frames = () if item.kind == "picture" else (CONFIG.clip.frames,)
            side = CONFIG.picture.side if item.kind == "picture" else CONFIG.clip.side
            assert item.array.shape == (*frames, side, side, 3)
            assert item.array.min() >= 0
            assert item.array.max() <= 1


def test_captions_say_what_is_there(items: list[MediaItem]) -> None:
    captions = {item.caption for item in items}

    expected = {
        "Chelsea the cat. A part at the upper left. Mirrored.",
        "Rectified stereo image pair with ground-truth disparities. Left view.",
        "Grace Hopper in the uniform of the United States Navy.",
        "Drawing, enemies: worm green dead.",
        "Drawing, animated characters: robot walk 3.",
        "Drawing, animated characters: robot walks to the left.",
        "Sound effect: phase jump 1, backwards, with an echo.",
        "Sound effect: coin 3, at 1.25 times the speed.",
        "Coffee cup. The view moves up and left.",
        "The Earth at night seen from space, turning, with the lights of its cities. "
        "The left of the picture. Mirrored.",
    }
    assert expected <= captions
    assert all(c.endswith(".") and c == " ".join(c.split()) for c in captions)


def test_captions_are_true_of_mirrors_and_backward_sounds(items: list[MediaItem]) -> None:
    found = {(item.kind, item.caption): item.array for item in items}

    cat = found["picture", "Chelsea the cat."]
    np.testing.assert_array_equal(found["picture", "Chelsea the cat. Mirrored."], cat[:, ::-1])
    coin = found["sound", "Sound effect: coin 3."]
    np.testing.assert_array_equal(found["sound", "Sound effect: coin 3, backwards."], coin[::-1])
    faster = found["sound", "Sound effect: coin 3, at 1.25 times the speed."]
    assert len(faster) == pytest.approx(len(coin) / 1.25, abs=1)
    right = found["clip", "Coffee cup. The view moves right."]
    step = CONFIG.clip.side // 2
    np.testing.assert_array_equal(right[-1][:, :step], right[0][:, step:])


def test_items_of_one_thing_share_a_group(items: list[MediaItem]) -> None:
    cats = {item.group for item in items if item.caption.startswith("Chelsea")}
    coins = {item.group for item in items if item.caption.startswith("Sound effect: coin 3")}
    robots = {item.group for item in items if "robot walk " in item.caption}

    assert cats == {"photograph/chelsea"}
    assert coins == {"sound/coin3"}
    assert len(robots) == 1


def test_order_and_content_repeat() -> None:
    first, second = (list(islice(demo_media(CONFIG, ["sound"]), 150)) for _ in range(2))

    assert [item[:3] for item in first] == [item[:3] for item in second]
    assert all(np.array_equal(a.array, b.array) for a, b in zip(first, second, strict=True))


def test_nothing_without_clear_rights_is_taken() -> None:
    names = {photograph.path.name for photograph in demo_photographs()}

    assert {"chelsea.png", "astronaut.png", "grace_hopper.jpg"} <= names
    assert "multipage.tif" not in names
    assert "no_time_for_that_tiny.gif" not in names  # no function of scikit-image documents it


def test_packages_are_read_and_not_imported() -> None:
    code = (
        "import sys\n"
        "from shadow_model.data.demo_media import demo_photographs, demo_media\n"
        "from shadow_model.data.media import MediaConfig\n"
        "assert demo_photographs() and next(demo_media(MediaConfig(), ['sound']))\n"
        "found = {'arcade', 'skimage', 'matplotlib', 'pyglet', 'pooch'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


@pytest.mark.parametrize(
    ("module", "package", "kind"),
    [("skimage", "scikit-image", "picture"), ("arcade", "arcade", "sound")],
)
def test_absent_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str, kind: str
) -> None:
    find_spec = importlib.util.find_spec

    def without(name: str, parent: str | None = None) -> ModuleSpec | None:
        return None if name == module else find_spec(name, parent)

    monkeypatch.setattr(importlib.util, "find_spec", without)

    with pytest.raises(ConfigError, match=rf"package {package}; found .*shadow-proof\[demo\]"):
        list(demo_media(CONFIG, [kind]))  # type: ignore[list-item]


def test_package_without_its_data_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty = ModuleSpec("arcade", None, is_package=True)
    empty.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: empty)

    with pytest.raises(ConfigError, match="no folder"):
        list(demo_media(CONFIG, ["sound"]))


def test_held_out_photographs_are_coded_well(items: list[MediaItem]) -> None:
    pictures = [item for item in items if item.kind == "picture"]
    unseen = {"photograph/chelsea", "photograph/immunohistochemistry"}
    fitted = [item.array for item in pictures if item.group not in unseen]
    whole = [i.array for i in pictures if i.group in unseen and i.caption.count(".") == 1]

    codec = fit_codec("picture", fitted[::3], CONFIG, seed=0)

    # measured 25.2 dB with a third of the items; patches of 8 x 8 or sign codes stay under 23
    assert len(whole) == 2
    figures = measure(codec, whole)
    assert figures["psnr_db"] > 23.5


def test_held_out_sounds_are_coded_well(items: list[MediaItem]) -> None:
    sounds = [item for item in items if item.kind == "sound"]
    fitted = [item.array for item in sounds if not item.group.endswith("3")]
    unseen = [i.array for i in sounds if i.group.endswith("3") and "," not in i.caption]

    codec = fit_codec("sound", fitted[::2], CONFIG, seed=0)

    # measured 6.2 dB; one code for everything is over 20 dB
    assert measure(codec, unseen)["log_mel_distance_db"] < 8
