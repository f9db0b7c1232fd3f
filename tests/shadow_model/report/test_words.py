"""Numbers read as a person writes them."""

import pytest

from shadow_model.report import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (0.25, "0.25"),
        (999, "999"),
        (999.7, "1.00 k"),
        (1_234_567, "1.23 M"),
        (45_600, "45.6 k"),
        (456_000_000, "456 M"),
        (2.3e9, "2.30 G"),
        (1.4e18, "1.40 E"),
        (-1500, "-1.50 k"),
    ],
)
def test_quantity(value: float | None, text: str) -> None:
    assert words.quantity(value) == text


def test_quantity_takes_a_unit() -> None:
    assert words.quantity(25.2e12, "FLOP") == "25.2 TFLOP"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0123, "12 ms"),
        (3.14159, "3.1 s"),
        (59.99, "60.0 s"),
        (133, "2 min 13 s"),
        (3725, "1 h 2 min"),
        (7199.6, "2 h 0 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (3 * 1024**3, "3 GiB")],
)
def test_size(num_bytes: float | None, text: str) -> None:
    assert words.size(num_bytes) == text


def test_losses_and_changes() -> None:
    assert words.loss(5.12345, 0.0123) == "5.123 ± 0.012"
    assert words.loss(5.12345) == "5.123"
    assert words.loss(None, 0.1) == "–"
    assert words.change(-0.0494) == "−0.049"
    assert words.change(0.5) == "+0.500"
    assert words.change(None) == "–"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("rows", 65_536, "65,536"),
        ("correlation", 0.78131, "0.7813"),
        ("peak_bytes", 1536, "1.50 KiB"),
        ("build_s", 61, "1 min 1 s"),
        ("seconds.plan", 3.1, "3.1 s"),
        ("tokens_per_s", 9301.0, "9,301"),
        ("quality.psnr_db", 24.6, "24.6 dB"),
        ("passed", True, "yes"),
        ("missing", None, "–"),
        ("lanes", ["a", "b"], "a, b"),
        ("device", "cpu", "cpu"),
    ],
)
def test_figure_follows_the_unit_in_its_name(name: str, value: object, text: str) -> None:
    assert words.figure(name, value) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.min_distance", "rows: min distance"),
        ("build_s", "build"),
        ("tokens_per_s", "tokens per s"),
        ("psnr_db", "psnr"),
    ],
)
def test_names_become_words(name: str, text: str) -> None:
    assert words.spoken(name) == text
