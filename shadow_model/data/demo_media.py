"""The embedded default's pictures, sounds and clips: what installed packages carry inside them.

Photographs of scikit-image and matplotlib; drawings, sounds and a film of the Earth of arcade.
Nothing is downloaded, and no package is imported: their folders are found and read as data, so
neither scikit-image's fetcher nor arcade's window code ever runs. There are few photographs, sounds
and films, so each gives several items, and the caption says what was done to it: parts and mirror
images of photographs, windows that move over them as clips, sounds faster, slower, backwards and
with an echo. All items of one photograph, sound or stretch of film form one group.

Left out: arcade's songs and background layers and drawings of other authors than Kenney (their
licences are not CC0), the sound of its film, and scikit-image's set of faces (`lfw_subset`).
"""

import ast
import importlib.util
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.signal import resample_poly

from shadow_model.data.clip import ClipConfig, iter_frames
from shadow_model.data.media import MEDIA_KINDS, MediaConfig, MediaItem, MediaKind
from shadow_model.data.picture import read_picture, square
from shadow_model.data.sound import SAMPLE_RATE, SoundConfig, cut_sound, read_sound
from shadow_model.errors import ConfigError
from shadow_model.syntax import parse_source

DEMO_PACKAGES = ("arcade", "matplotlib", "scikit-image")
"""Distributions whose files the items come from."""
_DRAWINGS = (
    "alien",
    "animated_characters",
    "cards",
    "enemies",
    "items",
    "pinball",
    "space_shooter",
    "tiles",
    "topdown_tanks",
)
"""Folders of Kenney's drawings (CC0)."""
_MATPLOTLIB = {
    "grace_hopper.jpg": "Grace Hopper in the uniform of the United States Navy.",
    "Minduka_Present_Blue_Pack.png": "A drawing of a present in a blue pack.",
}
_PLACES = {
    "the upper left": (0.0, 0.0),
    "the upper middle": (0.0, 0.5),
    "the upper right": (0.0, 1.0),
    "the left": (0.5, 0.0),
    "the middle": (0.5, 0.5),
    "the right": (0.5, 1.0),
    "the lower left": (1.0, 0.0),
    "the lower middle": (1.0, 0.5),
    "the lower right": (1.0, 1.0),
}
_MOVES = {
    "right": (0, 1),
    "left": (0, -1),
    "down": (1, 0),
    "up": (-1, 0),
    "down and right": (1, 1),
    "down and left": (1, -1),
    "up and right": (-1, 1),
    "up and left": (-1, -1),
}
_SPEEDS = tuple(Fraction(n, 8) for n in (8, 5, 6, 7, 9, 10, 12))
_ECHO_S = 0.12
_FILM = "The Earth at night seen from space, turning, with the lights of its cities."


class Photograph(NamedTuple):
    """A sample picture of a package, and what the package says it shows."""

    name: str
    caption: str
    path: Path


def demo_media(
    config: MediaConfig, kinds: Sequence[MediaKind] = MEDIA_KINDS
) -> Iterator[MediaItem]:
    """Yield the embedded items, kind by kind and group by group, in an order that never changes.

    Args:
        config: Sizes, rates and lengths of the items; arrays come ready for these codecs.
        kinds: Kinds to yield.

    Raises:
        ConfigError: A package of the extra `demo` is not installed, or holds no such data.
    """
    if "picture" in kinds:
        for photograph in demo_photographs():
            yield from _photograph_views(photograph, config.picture.side)
        for path in _drawings():
            yield _drawing_item(path, config.picture.side)
    if "sound" in kinds:
        for path in sorted(_resources("sounds").glob("*.wav")):
            yield from _sound_items(path, config.sound)
    if "clip" in kinds:
        for photograph in demo_photographs():
            yield from _moving_windows(photograph, config.clip)
        yield from _walks(config.clip)
        yield from _film_items(config.clip)


def demo_photographs() -> list[Photograph]:
    """Return the sample pictures, by package and name.

    scikit-image's come with the first sentence of the function that loads each; those that it would
    have to download are not there.
    """
    folder = _package("skimage", "scikit-image") / "data"
    found = [_documented(source, folder) for source in sorted(folder.glob("*.py"))]
    pictures = {photograph.path: photograph for photograph in chain.from_iterable(found)}
    if not pictures:
        raise _absent("scikit-image", f"pictures in {folder}")
    sample = _package("matplotlib", "matplotlib") / "mpl-data" / "sample_data"
    for name, caption in _MATPLOTLIB.items():
        if (sample / name).is_file():
            pictures[sample / name] = Photograph(Path(name).stem, caption, sample / name)
    return [pictures[path] for path in sorted(pictures, key=lambda p: (p.parent.name, p.name))]


def _documented(source: Path, folder: Path) -> Iterator[Photograph]:
    """Yield the pictures on disk that functions of a source file load, with their docstrings."""
    for node in parse_source(source.read_text("utf-8")).body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        caption = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
        for name in _loaded_names(node):
            side = {"_left": " Left view.", "_right": " Right view."}
            view = next((text for end, text in side.items() if Path(name).stem.endswith(end)), "")
            if (folder / name).is_file():
                yield Photograph(node.name, caption.rstrip(".") + "." + view, folder / name)


def _loaded_names(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            match = re.fullmatch(r"data/([\w-]+\.(?:png|jpg))", node.value)
            if match:
                yield match[1]


def _photograph_views(photograph: Photograph, side: int) -> Iterator[MediaItem]:
    """Yield the whole, nine halves and nine thirds, each also mirrored."""
    whole = read_picture(photograph.path)
    views = [(photograph.caption, whole)]
    for (part, zoom), place in product((("A part", 2), ("A small part", 3)), _PLACES):
        views.append((f"{photograph.caption} {part} at {place}.", _part(whole, zoom, place)))
    group = f"photograph/{photograph.name}"
    for caption, view in views:
        fitted = square(view, side)
        yield MediaItem("picture", caption, group, fitted)
        yield MediaItem("picture", f"{caption} Mirrored.", group, fitted[:, ::-1])


def _part(picture: np.ndarray, zoom: int, place: str) -> np.ndarray:
    height, width, _ = picture.shape
    size = max(1, min(height, width) // zoom)
    down, along = _PLACES[place]
    top, left = round((height - size) * down), round((width - size) * along)
    return picture[top : top + size, left : left + size]


def _drawings() -> list[Path]:
    images = _resources("images")
    return sorted(chain.from_iterable((images / name).rglob("*.png") for name in _DRAWINGS))


def _drawing_item(path: Path, side: int) -> MediaItem:
    topic = _words(path.relative_to(_resources("images")).parts[0])
    name = _words(path.stem)
    # pictures of one thing differ in their last words: blue alien walking, climbing, falling
    group = " ".join(re.sub(r"\d+", "", name).split()[:2])
    caption = f"Drawing, {topic}: {name}."
    return MediaItem("picture", caption, f"drawing/{topic}/{group}", _on_white(path, side))


def _on_white(path: Path, side: int) -> np.ndarray:
    """Return a whole drawing in the middle of a white square."""
    drawing = read_picture(path)
    height, width, _ = drawing.shape
    size = max(height, width, side // 2)
    top, left = (size - height) // 2, (size - width) // 2
    canvas = np.ones((size, size, 3), np.float32)
    canvas[top : top + height, left : left + width] = drawing
    return square(canvas, side)


def _sound_items(path: Path, config: SoundConfig) -> Iterator[MediaItem]:
    name = _words(path.stem)
    original = read_sound(path)
    for speed, backwards, echo in product(_SPEEDS, (False, True), (False, True)):
        sound = _at_speed(original, speed)
        sound = sound[::-1] if backwards else sound
        sound = _with_echo(sound) if echo else sound
        said = [f"Sound effect: {name}"]
        said += [f"at {float(speed):g} times the speed"] * (speed != 1)
        said += ["backwards"] * backwards + ["with an echo"] * echo
        for piece in cut_sound(sound, config.max_seconds):
            yield MediaItem("sound", ", ".join(said) + ".", f"sound/{path.stem}", piece)


def _at_speed(sound: np.ndarray, speed: Fraction) -> np.ndarray:
    if speed == 1:
        return sound
    return np.asarray(resample_poly(sound, speed.denominator, speed.numerator), np.float32)


def _with_echo(sound: np.ndarray) -> np.ndarray:
    delay = round(_ECHO_S * SAMPLE_RATE)
    longer = np.pad(sound, (0, 2 * delay))
    for times, loudness in ((1, 0.5), (2, 0.25)):
        longer[times * delay : times * delay + len(sound)] += np.float32(loudness) * sound
    return longer


def _moving_windows(photograph: Photograph, config: ClipConfig) -> Iterator[MediaItem]:
    """Yield windows of half the side that move over a photograph, and two that zoom."""
    large = square(read_picture(photograph.path), 2 * config.side)
    shares = np.linspace(0, 1, config.frames)
    views = [
        (
            f"The view moves {name}.",
            np.stack([_window(large, config.side, move, s) for s in shares]),
        )
        for name, move in _MOVES.items()
    ]
    closer = np.stack([_zoomed(large, config.side, s) for s in shares])
    views += [("The view comes closer.", closer), ("The view draws back.", closer[::-1])]
    group = f"photograph/{photograph.name}"
    for said, clip in views:
        yield MediaItem("clip", f"{photograph.caption} {said}", group, clip)


def _window(large: np.ndarray, side: int, move: tuple[int, int], share: float) -> np.ndarray:
    """Return the window after a share of its way of half a side, which the centre halves."""
    top, left = (round(side / 2 + step * side * (share - 0.5) / 2) for step in move)
    return large[top : top + side, left : left + side]


def _zoomed(large: np.ndarray, side: int, share: float) -> np.ndarray:
    edge = round(side / 2 * share)
    return square(large[edge : len(large) - edge, edge : len(large) - edge], side)


def _walks(config: ClipConfig) -> Iterator[MediaItem]:
    """Yield the drawn characters walking, to either side."""
    for folder in sorted((_resources("images") / "animated_characters").iterdir()):
        drawings = [_on_white(path, config.side) for path in sorted(folder.glob("*_walk*.png"))]
        if drawings:
            steps = np.stack([drawings[i % len(drawings)] for i in range(config.frames)])
            caption = f"Drawing, animated characters: {_words(folder.name)} walks to the"
            group = f"walk/{folder.name}"
            yield MediaItem("clip", f"{caption} right.", group, steps)
            yield MediaItem("clip", f"{caption} left.", group, steps[:, :, ::-1])


def _film_items(config: ClipConfig) -> Iterator[MediaItem]:
    """Yield the film's left, middle and right, also mirrored; each stretch of time is a group."""
    film = _resources("video") / "earth.mp4"
    shown = [
        np.stack([_film_square(frame, place, config.side) for place in range(3)])
        for frame in iter_frames(film, config.frames_per_second)
    ]
    for start in range(0, len(shown) - config.frames + 1, config.frames):
        stretch = np.stack(shown[start : start + config.frames], axis=1)
        group = f"film/earth/{start // config.frames:03d}"
        for name, clip in zip(("left", "middle", "right"), stretch, strict=True):
            caption = f"{_FILM} The {name} of the picture."
            yield MediaItem("clip", caption, group, clip)
            yield MediaItem("clip", f"{caption} Mirrored.", group, clip[:, :, ::-1])


def _film_square(frame: np.ndarray, place: int, side: int) -> np.ndarray:
    height, width, _ = frame.shape
    left = max(0, width - height) * place // 2
    return square(frame[:, left : left + height], side)


def _resources(name: str) -> Path:
    folder = _package("arcade", "arcade") / "resources" / "assets" / name
    if not folder.is_dir():
        raise _absent("arcade", f"no folder {folder}")
    return folder


def _package(module: str, distribution: str) -> Path:
    """Return a package's folder without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise _absent(distribution, "it is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def _absent(distribution: str, found: str) -> ConfigError:
    return ConfigError(
        "embedded media",
        f"find the data inside the package {distribution}",
        found,
        "Install the extra `demo`: pip install 'shadow-proof[demo]', or `make install`.",
    )


def _words(name: str) -> str:
    """Return a file name as words: `wormGreen_dead2` is `worm green dead 2`."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Za-z])(?=\d)|_", " ", name)
    return spaced.lower()
