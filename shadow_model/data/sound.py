"""Sounds: read, write, and code as one log-mel frame every 20 ms (50 codes a second).

Sounds are mono at 16 kHz. A frame is 64 log-mel magnitudes of a Hann window of 64 ms; the codec
levels every sound to the same peak first, so loudness is lost. Back to a wave by Griffin-Lim.

Legend: F frames, M mel bands; sounds are (samples,) float32 in [-1, 1].

Source: Griffin and Lim, Signal Estimation from Modified Short-Time Fourier Transform, IEEE TASSP
32(2), 1984, section III; its momentum from Perraudin et al., A Fast Griffin-Lim Algorithm, 2013.
"""

import io
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import soundfile
from pydantic import Field
from scipy.signal import resample_poly

from shadow_model.data.codebook import CodecConfig
from shadow_model.data.codec import Codec
from shadow_model.errors import DataError
from shadow_model.reading import reading
from shadow_model.store import write_whole
from shadow_model.table.layout import Kind

SOUND_SUFFIXES = frozenset({".flac", ".wav"})
SAMPLE_RATE = 16_000
HOP = 320
"""Samples from one frame to the next: 20 ms."""
WINDOW = 1024
NUM_MELS = 64
MAX_SOUND_S = 7200
"""Longer files are refused before they are decoded."""
MAX_SAMPLES = MAX_SOUND_S * 48_000
"""More are refused whatever their rate: they are held in memory."""
_RATES = (1_000, 768_000)
_BLOCK_FRAMES = 1 << 18
_FLOOR = 1e-4
_AUDIBLE = math.log(1e-3)
_DB = 20 / math.log(10)
_AS_FLOAT: dict[str, Any] = {"dtype": "float32", "always_2d": True}
_LOWEST_HZ, _HIGHEST_HZ = 40.0, 7800.0


class SoundConfig(CodecConfig):
    """The sound codec's shape and effort."""

    second: int = Field(64, ge=2, le=64, description="centres of the remainder (B)")
    max_seconds: float = Field(
        5.0, ge=0.1, le=600, description="longer sounds are cut into pieces of this many seconds"
    )
    peak: float = Field(0.7, gt=0, le=1, description="peak that every sound is levelled to")
    phase_rounds: int = Field(48, ge=1, le=1000, description="rounds of Griffin-Lim")


class SoundCodec(Codec[SoundConfig]):
    """Codes of sounds; decoding looks at five frames."""

    kind: ClassVar[Kind] = "sound"
    config_type: ClassVar[type[CodecConfig]] = SoundConfig
    offsets: ClassVar[Sequence[tuple[int, ...]]] = [(-2,), (-1,), (0,), (1,), (2,)]

    @classmethod
    def vector_width(cls, config: SoundConfig) -> int:  # noqa: ARG003
        """Return the width of a grid's vectors."""
        return NUM_MELS

    @classmethod
    def to_grid(cls, item: np.ndarray, config: SoundConfig) -> np.ndarray:
        """Return the log-mel frames (F, M) float32 of a sound levelled to the config's peak."""
        return log_mel(level(item, config.peak))

    @classmethod
    def from_grid(cls, grid: np.ndarray, config: SoundConfig) -> np.ndarray:
        """Return a sound (F * HOP,) float32 of its log-mel frames."""
        return griffin_lim(grid, config.phase_rounds)

    @classmethod
    def grid_shape(cls, num_codes: int, config: SoundConfig) -> tuple[int, ...]:  # noqa: ARG003
        """Return the number of frames."""
        return (num_codes,)

    def decode_log_mel(self, codes: np.ndarray) -> np.ndarray:
        """Return the log-mel frames (F, M) float32 of codes, without going back to a wave."""
        return self._decoder.decode(codes)


def read_sound(path: Path) -> np.ndarray:
    """Read a sound file; channels are averaged, the rate becomes 16 kHz.

    Returns:
        (samples,) float32, at least one.

    Raises:
        DataError: The file is unreadable, truncated, empty, or too long.
    """
    must = "be a whole WAV or FLAC sound"
    fix = "Repair or remove the file."
    _check_whole(path, must, fix)
    with (
        reading(DataError, path, must, fix, soundfile.SoundFileError),
        soundfile.SoundFile(path) as file,
    ):
        _check_length(path, file.frames, file.samplerate)
        # by blocks: what a header states is not reserved before it is there
        blocks = [block.mean(1) for block in file.blocks(_BLOCK_FRAMES, **_AS_FLOAT)]
        wave = np.concatenate([np.zeros(0, np.float32), *blocks])
        if not len(wave) or len(wave) < file.frames:
            raise DataError(path, must, f"{len(wave)} of {file.frames} samples", fix)
        if not np.isfinite(wave).all():
            at = int(np.flatnonzero(~np.isfinite(wave))[0])
            raise DataError(path, "hold finite samples", f"{wave[at]} at sample {at}", fix)
        return resample(wave, file.samplerate)


def _check_length(path: Path, frames: int, rate: int) -> None:
    """Refuse a sound by its header: too long, or of a rate that no recorder has."""
    if not _RATES[0] <= rate <= _RATES[1]:
        must = f"have a rate from {_RATES[0]} to {_RATES[1]} Hz"
        raise DataError(path, must, f"{rate} Hz", "Convert it.")
    if frames > min(MAX_SOUND_S * rate, MAX_SAMPLES):
        must = f"last at most {MAX_SOUND_S} s and have at most {MAX_SAMPLES:,} samples"
        raise DataError(path, must, f"{frames / rate:.0f} s, {frames:,} samples", "Cut it.")


def resample(wave: np.ndarray, rate: int) -> np.ndarray:
    """Return a wave of some rate (Hz) at 16 kHz, (samples,) float32, by a polyphase filter."""
    common = math.gcd(rate, SAMPLE_RATE)
    if rate == SAMPLE_RATE:
        return wave.astype(np.float32, copy=False)
    return np.asarray(resample_poly(wave, SAMPLE_RATE // common, rate // common), np.float32)


def cut_sound(sound: np.ndarray, max_seconds: float) -> list[np.ndarray]:
    """Cut a sound into pieces of at most `max_seconds`; a last bit under 0.1 s is left out."""
    size = max(1, round(max_seconds * SAMPLE_RATE))
    pieces = [sound[i : i + size] for i in range(0, len(sound), size)]
    if len(pieces) > 1 and len(pieces[-1]) < SAMPLE_RATE // 10:
        pieces.pop()
    return pieces


def wav_bytes(sound: np.ndarray) -> bytes:
    """Return a sound as the bytes of a WAV file, 16 kHz, 16 bits; what exceeds 1 is clipped."""
    buffer = io.BytesIO()
    soundfile.write(buffer, np.clip(sound, -1, 1), SAMPLE_RATE, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def write_wav(path: Path, sound: np.ndarray) -> None:
    """Write a sound as a WAV file, whole or not at all."""
    write_whole(path, wav_bytes(sound))


def level(sound: np.ndarray, peak: float) -> np.ndarray:
    """Return the sound scaled so that its largest magnitude is `peak`; silence stays silent."""
    return sound * np.float32(peak / max(1e-3, float(np.abs(sound).max(initial=0))))


def log_mel(sound: np.ndarray) -> np.ndarray:
    """Return (F, M) float32 natural logarithms of mel magnitudes, F = ceil(samples / HOP)."""
    padded = np.pad(sound, (0, -len(sound) % HOP))
    mels = np.abs(_stft(padded)) @ _mel_filters()
    frames: np.ndarray = np.log(mels + _FLOOR).astype(np.float32)
    return frames


def griffin_lim(frames: np.ndarray, rounds: int) -> np.ndarray:
    """Find a sound (F * HOP,) float32 with these log-mel frames (F, M), the same every time."""
    mels = np.maximum(np.exp(frames) - _FLOOR, 0)
    magnitude = np.maximum(mels @ _mel_inverse(), 0).astype(np.float32)
    phase = np.random.default_rng(0).random(magnitude.shape, np.float32)
    spectrum = magnitude * np.exp(2j * np.pi * phase)
    previous = np.zeros_like(spectrum)
    for _ in range(rounds):
        consistent = _stft(_istft(spectrum))
        pushed = consistent + 0.99 / 1.99 * (consistent - previous)
        previous = consistent
        spectrum = magnitude * pushed / np.maximum(np.abs(pushed), 1e-9)
    return _istft(spectrum).astype(np.float32)


def log_mel_distance_db(original: np.ndarray, decoded: np.ndarray) -> float:
    """Return the mean distance in dB of two log-mel grids (F, M), over the audible frames.

    A frame's distance is the root of the mean square over its bands. Frames of the original whose
    every band is under -60 dB do not count; 0 where none is left.
    """
    audible = original.max(1) > _AUDIBLE
    if not audible.any():
        return 0.0
    difference = _DB * (original - decoded)[audible].astype(np.float64)
    return float(np.sqrt((difference**2).mean(1)).mean())


def _stft(sound: np.ndarray) -> np.ndarray:
    """Return (samples / HOP, WINDOW / 2 + 1) complex; frame i is centred on its hop's middle."""
    before = (WINDOW - HOP) // 2
    padded = np.pad(sound, (before, WINDOW - HOP - before))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    return np.fft.rfft(frames * _hann(), axis=1)


def _istft(spectrum: np.ndarray) -> np.ndarray:
    """Return the sound (F * HOP,) whose short-time spectrum is nearest in least squares."""
    count = len(spectrum)
    waves = np.fft.irfft(spectrum, WINDOW, axis=1) * _hann()
    sound, weight = np.zeros((count - 1) * HOP + WINDOW), np.zeros((count - 1) * HOP + WINDOW)
    for i, wave in enumerate(waves):
        sound[i * HOP : i * HOP + WINDOW] += wave
        weight[i * HOP : i * HOP + WINDOW] += _hann() ** 2
    before = (WINDOW - HOP) // 2
    return (sound / np.maximum(weight, 1e-3))[before : before + count * HOP]


@cache
def _hann() -> np.ndarray:
    return np.hanning(WINDOW + 1)[:-1].astype(np.float32)


@cache
def _mel_filters() -> np.ndarray:
    """Return (WINDOW / 2 + 1, M) float32 triangles, evenly spaced in mel, each of sum 1."""
    lowest, highest = (2595 * math.log10(1 + hz / 700) for hz in (_LOWEST_HZ, _HIGHEST_HZ))
    edges = 700 * (10 ** (np.linspace(lowest, highest, NUM_MELS + 2) / 2595) - 1)
    hz = np.fft.rfftfreq(WINDOW, 1 / SAMPLE_RATE)
    rise = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    filters = np.maximum(0, np.minimum(rise, fall))
    filters /= np.maximum(filters.sum(1, keepdims=True), 1e-6)
    return filters.T.astype(np.float32)


@cache
def _mel_inverse() -> np.ndarray:
    return np.linalg.pinv(_mel_filters()).astype(np.float32)


def _check_whole(path: Path, must: str, fix: str) -> None:
    """Raise DataError where a WAV file ends before its samples do: libsndfile reads on silently."""
    with reading(DataError, path, must, fix), path.open("rb") as file:
        start = file.read(1 << 16)
        size = path.stat().st_size
    at = 12
    while start[:4] == b"RIFF" and at + 8 <= len(start):
        length = int.from_bytes(start[at + 4 : at + 8], "little")
        if start[at : at + 4] == b"data":
            # streaming writers, who cannot know the length, leave a number over 2^31
            if size - at - 8 < length < 1 << 31:
                found = f"{size - at - 8} of {length} bytes of samples"
                raise DataError(path, must, found, fix)
            return
        at += 8 + length + length % 2
