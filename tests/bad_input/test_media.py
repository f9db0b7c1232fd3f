"""Pictures, sounds, clips, texts, codecs and recipes: damaged, oversized and hostile files."""

import hashlib
import io
import json
import re
import struct
import wave
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import pytest
import soundfile
from PIL import Image
from safetensors.numpy import load_file, save

from shadow_model.data.captions import Captions
from shadow_model.data.clip import ClipConfig, read_clip, write_animated
from shadow_model.data.files import iter_file_text, list_files
from shadow_model.data.picture import PictureCodec, PictureConfig, read_picture, write_png
from shadow_model.data.sound import read_sound, write_wav
from shadow_model.errors import DataError
from shadow_model.recipes import load
from shadow_model.report.inputs import read_json
from shadow_model.report.previews import read_previews
from shadow_model.train.main import read_job

RNG = np.random.default_rng(0)
PICTURE = RNG.random((20, 30, 3), np.float32)
CLIP = RNG.random((6, 32, 32, 3), np.float32)
WAVE = np.sin(np.arange(8000) / 9).astype(np.float32)
CODEC = PictureConfig(side=16, first=8, second=4)


class Reader(NamedTuple):
    """How a file is made and read."""

    write: Callable[[Path], object]
    read: Callable[[Path], object]
    loose: bool = False


def write_film(path: Path, side: int = 32) -> None:
    with av.open(str(path), "w") as film:
        stream = film.add_stream("mpeg4", rate=8)
        stream.width = stream.height = side
        stream.pix_fmt = "yuv420p"
        for frame in CLIP:
            film.mux(stream.encode(av.VideoFrame.from_ndarray((frame * 255).astype(np.uint8))))
        film.mux(stream.encode())


def read_frames(path: Path) -> object:
    return read_clip(path, ClipConfig())


def write_codec(path: Path) -> None:
    PictureCodec.fit(list(RNG.random((9, 16, 16, 3), np.float32)), CODEC, seed=0).save(path.parent)


def read_codec(path: Path) -> object:
    return PictureCodec.load(path.parent)


def read_captions(path: Path) -> object:
    if not path.parent.joinpath(path.name).exists():
        return list_files(path, {path.suffix})  # metadata that are not there are no fault
    return Captions(path.parent, "text").of(path.with_name("a.png"))


def read_preview(path: Path) -> object:
    return read_previews(path.parent.parent, 9)


def write_preview(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    write_png(path, PICTURE)


def text_of(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


READERS = {
    "a.png": Reader(lambda path: write_png(path, PICTURE), read_picture),
    "a.jpg": Reader(lambda path: to_image().save(path), read_picture),
    "a.webp": Reader(lambda path: to_image().save(path), read_picture),
    "a.bmp": Reader(lambda path: to_image().save(path), read_picture),
    "a.wav": Reader(lambda path: write_wav(path, WAVE), read_sound),
    "a.flac": Reader(lambda path: soundfile.write(path, WAVE, 16_000), read_sound),
    "a.gif": Reader(lambda path: write_animated(path, CLIP, 8), read_frames),
    "a.mp4": Reader(write_film, read_frames),
    "a.mkv": Reader(write_film, read_frames),
    "a.txt": Reader(text_of("some text\n\nü" * 9), lambda p: list(iter_file_text(p, 64)), True),
    "metadata.jsonl": Reader(text_of('{"file_name": "a.png", "text": "b"}\n'), read_captions, True),
    "metadata.csv": Reader(text_of("file_name,text\na.png,b\n"), read_captions, True),
    "picture.json": Reader(write_codec, read_codec),
    "picture.safetensors": Reader(write_codec, read_codec),
    "recipe.toml": Reader(text_of('base = "tiny"\n[proof.train]\ntokens = 40_000\n'), load, True),
    "smoke.json": Reader(text_of('{"loss": [1.5, 2]}'), read_json),
    "job.json": Reader(text_of("{}"), read_job),
    "preview/a.png": Reader(write_preview, read_preview),
}


def to_image() -> Image.Image:
    return Image.fromarray((PICTURE * 255).astype(np.uint8))


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_not_there(name: str, tmp_path: Path, gone: Any, refusal: Any) -> None:
    path, reader = tmp_path / name, READERS[name]
    reader.write(path)
    if name != "job.json":
        assert reader.read(path) is not None
    gone(path)
    if name == "preview/a.png" and gone.__name__ == "absent":
        assert reader.read(path) == [], "there may be none"
    elif gone.__name__ == "folder" and name in ("a.mp4", "a.mkv", "a.gif"):
        refusal(reader.read, path)  # a folder is a clip of pictures: here of none
    else:
        refusal(reader.read, path)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_is_something_else(
    name: str, tmp_path: Path, damaged: Any, refusal: Any, tolerance: Any
) -> None:
    path, reader = tmp_path / name, READERS[name]
    reader.write(path)
    damaged(path)
    last_bytes = damaged.__name__ == "cut" and path.stat().st_size > 100
    if reader.loose or (last_bytes and name in MAY_LACK_AN_END):
        tolerance(reader.read, path)
    else:
        refusal(reader.read, path)


MAY_LACK_AN_END = {"a.gif", "a.mkv", "a.mp4", "a.flac", "a.png", "preview/a.png"}
"""What is read of them is whole frames, or the last bytes are no part of the picture."""


def chunk(name: bytes, content: bytes) -> bytes:
    body = name + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def png(width: int, height: int, data: bytes = b"", *more: bytes) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    parts = (head, *more, chunk(b"IDAT", zlib.compress(data)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def jpeg_with_exif(exif: bytes) -> bytes:
    file = io.BytesIO()
    to_image().save(file, "JPEG", exif=b"Exif\0\0" + exif)
    return file.getvalue()


def wav(rate: int = 16_000, samples: bytes = bytes(200), channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(samples)
    return file.getvalue()


def float_wav(value: float) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.full(99, value, np.float32), 16_000, format="WAV", subtype="FLOAT")
    return file.getvalue()


def long_flac() -> bytes:
    """Return a FLAC whose header states 2**36 - 1 samples at 655,350 Hz, in eight channels."""
    stream = (655_350 << 44) | (7 << 41) | (15 << 36) | ((1 << 36) - 1)
    info = struct.pack(">HH", 4096, 4096) + bytes(6) + stream.to_bytes(8) + bytes(16)
    return b"fLaC" + b"\x80" + len(info).to_bytes(3) + info


def play_list(folder: Path) -> bytes:
    write_film(folder / "private.mp4")
    return f"#EXTM3U\n#EXTINF:1,\nfile://{folder / 'private.mp4'}\n#EXT-X-ENDLIST\n".encode()


def concat_list(folder: Path) -> bytes:
    write_film(folder / "private.mp4")
    return b"ffconcat version 1.0\nfile 'private.mp4'\n"


def codec_arrays(folder: Path, **changes: Any) -> None:
    """Change a codec's arrays, and the digest in its record with them."""
    write_codec(folder / "picture.json")
    path, record = folder / "picture.safetensors", folder / "picture.json"
    arrays = {**load_file(path), **changes}
    content = save({name: array for name, array in arrays.items() if array is not None})
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    record.write_text(json.dumps({**json.loads(record.read_text()), "sha256": digest}))


def recipe(text: str) -> bytes:
    return f'base = "tiny"\n{text}\n'.encode()


NESTED = b"[" * 100_000 + b"]" * 100_000
TABLE = b'base = "tiny"\ntable.codebooks.image' + b".a" * 3000 + b" = 1\n"
BAD: dict[str, tuple[str, bytes | Callable[[Path], bytes], str]] = {
    "picture: bomb": ("a.png", png(60_000, 60_000), "pixels"),
    "picture: large": ("a.png", png(9000, 9000), "pixels"),
    "picture: no pixel": ("a.png", png(0, 5), "picture|pixels"),
    "picture: few data": ("a.png", png(8000, 7000, bytes(99)), "picture"),
    "picture: text bomb": (
        "a.png",
        png(1, 1, bytes(4), chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 26)))),
        "picture",
    ),
    "sound: NaN": ("a.wav", float_wav(np.nan), "nan at sample 0"),
    "sound: infinity": ("a.wav", float_wav(np.inf), "finite"),
    "sound: no rate": ("a.wav", wav(rate=1), "rate"),
    "sound: absurd rate": ("a.wav", wav(rate=2_000_000_011), "rate"),
    "sound: absurd length": ("a.flac", long_flac(), "last at most"),
    "sound: no sample": ("a.wav", wav(samples=b""), "samples"),
    "clip: play list": ("a.mp4", play_list, "clip"),
    "clip: list of files": ("a.mp4", concat_list, "clip"),
    "clip: a sound": ("a.mp4", wav(), "clip|pictures"),
    "clip: large": (
        "a.gif",
        b"GIF89a" + struct.pack("<HH", 60_000, 60_000) + bytes(9),
        "pixels|clip",
    ),
    "text: UTF-16": ("a.txt", "text".encode("utf-16"), "0xff at offset 0"),
    "text: cut sign": ("a.txt", "ü".encode()[:1], "0xc3"),
    "captions: nested": ("metadata.jsonl", NESTED, "nested|line 1"),
    "captions: numbers": ("metadata.jsonl", b'{"file_name": 3, "text": 4}', "entry 1"),
    "captions: NaN": ("metadata.jsonl", b'{"file_name": "a", "text": NaN}', "line 1"),
    "captions: huge cell": ("metadata.csv", b"file_name,text\na," + b"b" * 200_000, "field"),
    "captions: no column": ("metadata.csv", b"file,words\na,b\n", "entry 1"),
    "codec: nested": ("picture.json", NESTED, "nested"),
    "codec: a list": ("picture.json", b"[1]", "record"),
    "recipe: nested": ("recipe.toml", b"a = " + NESTED, "nested"),
    "recipe: nested tables": ("recipe.toml", TABLE, "nested"),
    "recipe: a part as text": ("recipe.toml", recipe('sources = "all"'), r"\[sources\]"),
    "recipe: a proof as number": ("recipe.toml", recipe("proof = 3"), r"\[proof\]"),
    "recipe: inputs as numbers": ("recipe.toml", recipe("sources.inputs = [1]"), "inputs"),
    "recipe: nobody's home": (
        "recipe.toml",
        recipe('[[sources.inputs]]\nname = "a"\nkind = "text"\npath = "~nobody-here/a"'),
        "home",
    ),
    "recipe: infinite hours": ("recipe.toml", recipe("proof.train.hours = inf"), "finite"),
    "recipe: NaN": ("recipe.toml", recipe("proof.train.lr = nan"), "lr"),
    "recipe: negative": ("recipe.toml", recipe("proof.train.tokens = -4"), "tokens"),
    "recipe: unknown": ("recipe.toml", recipe("proof.train.token = 4"), "tokens"),
    "recipe: too large": ("recipe.toml", b"#" * (1 << 21), "bytes"),
    "record: a list": ("smoke.json", b"[]", "object"),
    "record: nested": ("smoke.json", NESTED, "nested"),
    "job: a number": ("job.json", b"3", "TrainJob"),
    "job: nested": ("job.json", NESTED, "nested"),
    "preview: bomb": ("preview/a.png", png(60_000, 60_000), "pixels"),
}


@pytest.mark.parametrize("name", READERS)
def test_changed_bytes_give_a_result_or_an_error_of_ours(
    name: str, tmp_path: Path, changes: Any
) -> None:
    path, reader = tmp_path / name, READERS[name]
    reader.write(path)
    changes(reader.read, path)


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_holds_what_it_must_not(case: str, tmp_path: Path, refusal: Any) -> None:
    name, content, said = BAD[case]
    path = tmp_path / name
    READERS[name].write(path)
    path.write_bytes(content if isinstance(content, bytes) else content(tmp_path))
    error = refusal(READERS[name].read, path)
    assert re.search(said, str(error)), str(error)


EXIF = [
    b"",
    b"MM",
    b"II*\0\xff\xff\xff\xff",
    b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x05\0\0\0\x01\0\0\xff\xff",
]


@pytest.mark.parametrize("exif", EXIF)
def test_garbled_marks_of_a_camera_do_no_harm(exif: bytes, tmp_path: Path, tolerance: Any) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg_with_exif(exif))
    tolerance(read_picture, path)


CODEC_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "lacks an array": ({"weight": None}, "shapes"),
    "another array": ({"colour": np.zeros(3, np.float32)}, "shapes"),
    "shape": ({"first": np.zeros((9, 48), np.float32)}, "shapes"),
    "type": ({"second": np.zeros((4, 48), np.int32)}, "int32"),
    "NaN": ({"second": np.full((4, 48), np.nan, np.float32)}, "NaN.* in second"),
}


@pytest.mark.parametrize("fault", CODEC_FAULTS)
def test_arrays_that_are_no_codec(fault: str, tmp_path: Path, refusal: Any) -> None:
    changes, said = CODEC_FAULTS[fault]
    codec_arrays(tmp_path, **changes)
    error = refusal(read_codec, tmp_path / "picture.safetensors")
    assert re.search(said, str(error)), str(error)


def test_a_book_beside_a_picture_is_no_caption(tmp_path: Path, refusal: Any) -> None:
    (tmp_path / "a.txt").write_bytes(b"word " * 300_000)
    captions = Captions(tmp_path, "text")
    assert "caption" in refusal(captions.of, tmp_path / "a.png").must


@pytest.mark.parametrize("name", ["sub/../../outside.txt", "nul\0.txt"])
def test_places_that_cannot_be_are_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing there"):
        list_files(tmp_path / name, {".txt"})
