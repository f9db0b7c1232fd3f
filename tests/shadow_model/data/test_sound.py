"""Sounds: reading, log-mels, Griffin-Lim, the codec, bad files."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from shadow_model.data import sound
from shadow_model.data.sound import (
    HOP,
    NUM_MELS,
    SAMPLE_RATE,
    SoundCodec,
    SoundConfig,
    cut_sound,
    griffin_lim,
    level,
    log_mel,
    log_mel_distance_db,
    read_sound,
    write_wav,
)
from shadow_model.errors import DataError
from shadow_model.table.layout import BAND_ROWS


def tone(hz: float, seconds: float = 0.5, rate: int = SAMPLE_RATE) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)).astype("f4")


def chirps(count: int) -> list[np.ndarray]:
    """Tones that rise and fade, no two alike."""
    rng = np.random.default_rng(0)
    t = np.arange(SAMPLE_RATE // 2) / SAMPLE_RATE
    low, rise, fade = (
        rng.uniform(100, 2000, count),
        rng.uniform(0, 4000, count),
        rng.uniform(1, 8, count),
    )
    found = [
        np.exp(-f * t) * np.sin(6.28 * (a + b * t) * t)
        for a, b, f in zip(low, rise, fade, strict=True)
    ]
    return [wave.astype(np.float32) for wave in found]


@pytest.fixture(scope="module")
def codec() -> SoundCodec:
    return SoundCodec.fit(chirps(40), SoundConfig(first=32, second=16), seed=0)


def test_written_sound_is_read_back(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", tone(440))

    # 16 bits: half a step of 1 / 32768, and libsndfile scales by 32767 in writing
    np.testing.assert_allclose(read_sound(tmp_path / "a.wav"), tone(440), atol=2 / 32768)


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
def test_stereo_of_another_rate_becomes_mono_at_16_khz(tmp_path: Path, name: str) -> None:
    left = tone(440, rate=44_100)
    soundfile.write(tmp_path / name, np.stack([left, np.zeros_like(left)], 1), 44_100)

    found = read_sound(tmp_path / name)

    assert found.shape == (SAMPLE_RATE // 2,)
    # away from the ends the polyphase filter passes 440 Hz within 1 %: 0.005 of 0.5
    inside = slice(1000, -1000)
    np.testing.assert_allclose(found[inside], tone(440)[inside] / 2, atol=0.005)


def test_log_mel_finds_the_pitch() -> None:
    peaks = [log_mel(tone(hz))[10].argmax() for hz in (200, 800, 3200)]

    assert peaks == sorted(peaks)
    assert len(set(peaks)) == 3


@pytest.mark.parametrize(("samples", "frames"), [(1, 1), (320, 1), (321, 2), (16_000, 50)])
def test_fifty_frames_a_second(samples: int, frames: int) -> None:
    assert log_mel(np.zeros(samples, np.float32)).shape == (frames, NUM_MELS)


def test_short_time_spectrum_there_and_back() -> None:
    original = np.random.default_rng(0).normal(0, 0.1, 50 * HOP)

    found = sound._istft(sound._stft(original))

    # frames in the middle are covered by three windows: exact but for float32 windows
    np.testing.assert_allclose(found[HOP:-HOP], original[HOP:-HOP], atol=1e-5)


def test_griffin_lim_brings_the_frames_back() -> None:
    rng = np.random.default_rng(0)
    bursts = rng.normal(0, 0.1, SAMPLE_RATE) * np.abs(np.sin(np.arange(SAMPLE_RATE) / 3000))
    frames = log_mel(bursts.astype(np.float32))

    found = griffin_lim(frames, 48)

    assert found.shape == (len(frames) * HOP,)
    # measured 0.49 dB after 48 rounds and 1.66 dB after one
    assert log_mel_distance_db(frames, log_mel(found)) < 0.7
    np.testing.assert_array_equal(found, griffin_lim(frames, 48))


def test_codec_comes_near_sounds_it_was_fitted_to(codec: SoundCodec) -> None:
    original = chirps(40)[7]
    frames = codec.to_grid(original, codec.config)

    codes = codec.encode(original)

    assert codes.shape == (25,)
    assert codec.decode(codes).shape == (25 * HOP,)
    # 512 codes for 1,000 frames of tones; one code for all frames stays over 15 dB
    assert log_mel_distance_db(frames, codec.decode_log_mel(codes)) < 6


def test_loudness_does_not_change_the_codes(codec: SoundCodec) -> None:
    original = chirps(3)[2]

    np.testing.assert_array_equal(codec.encode(original), codec.encode(original / 4))


def test_silence_can_be_coded(codec: SoundCodec) -> None:
    silence = np.zeros(HOP * 3, np.float32)

    assert np.isfinite(codec.decode(codec.encode(silence))).all()
    np.testing.assert_array_equal(level(silence, 0.7), silence)


def test_distance_counts_audible_frames_only() -> None:
    frames = np.full((4, NUM_MELS), np.log(1e-2), np.float32)
    frames[2:] = np.log(1e-4)
    louder = frames.copy()
    louder[:2] += np.log(10)
    louder[2:] += 5

    # ten times the magnitude is 20 dB; float32 logarithms are good to 1e-6
    assert log_mel_distance_db(frames, louder) == pytest.approx(20, abs=1e-4)
    assert log_mel_distance_db(frames[2:], louder[2:]) == 0


def test_cut_leaves_out_only_a_last_bit() -> None:
    assert [len(p) for p in cut_sound(np.zeros(2500), 0.1)] == [1600]
    assert [len(p) for p in cut_sound(np.zeros(4800), 0.1)] == [1600] * 3
    assert [len(p) for p in cut_sound(np.zeros(10), 0.1)] == [10]
    assert [len(p) for p in cut_sound(np.zeros(18_000), 1.0)] == [16_000, 2000]


def test_default_codes_fill_the_band() -> None:
    assert SoundConfig().num_codes == BAND_ROWS["audio"]


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "no samples"])
def test_bad_files_are_named(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    noise = np.random.default_rng(0).normal(0, 0.1, 0 if damage == "no samples" else 20_000)
    soundfile.write(path, noise, 16_000)
    whole = path.read_bytes()
    if damage != "no samples":
        parts = {"empty": b"", "text": b"hello", "truncated": whole[: len(whole) // 2]}
        path.write_bytes(parts[damage])

    with pytest.raises(DataError, match=r"a\.\w+: must be a whole WAV or FLAC.*Repair or remove"):
        read_sound(path)


def test_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.wav.*No such file"):
        read_sound(tmp_path / "none.wav")


def test_too_long_sound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound, "MAX_SOUND_S", 0.4)
    write_wav(tmp_path / "a.wav", tone(440))

    with pytest.raises(DataError, match="last at most"):
        read_sound(tmp_path / "a.wav")


def test_streamed_wav_of_unknown_length_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    write_wav(path, tone(440))
    content = bytearray(path.read_bytes())
    at = content.index(b"data") + 4
    content[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(bytes(content))

    assert len(read_sound(path)) == SAMPLE_RATE // 2
