"""Tokens of the Hub are blotted out, by their form and by the variables that hold them."""

import pytest

from shadow_model.errors import ConfigError
from shadow_model.redaction import redacted

TOKEN = "hf_" + "aB3" * 12


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"token={TOKEN}", "token=hf_***"),
        (f"https://user:{TOKEN}@huggingface.co/x", "https://user:hf_***@huggingface.co/x"),
        ("the layer hf_short stays", "the layer hf_short stays"),
        ("", ""),
    ],
)
def test_what_looks_like_a_token_is_blotted_out(text: str, shown: str) -> None:
    assert redacted(text, {}) == shown


@pytest.mark.parametrize("name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"])
def test_the_value_of_a_variable_is_blotted_out_whatever_its_form(name: str) -> None:
    assert redacted("Bearer api_org_secret!", {name: "api_org_secret"}) == "Bearer hf_***!"


def test_a_short_value_is_a_word_and_stays() -> None:
    assert redacted("a text", {"HF_TOKEN": "a"}) == "a text"


def test_an_error_shows_no_token_in_any_part() -> None:
    error = ConfigError(f"{TOKEN}.toml", f"be {TOKEN}", TOKEN, f"Take {TOKEN} out.")
    assert TOKEN not in str(error)
    assert str(error).count("hf_***") == 4


def test_an_error_shows_no_sign_that_steers_a_terminal_and_no_flood() -> None:
    error = ConfigError("a.toml", "be short", "\x1b[2J" + "x" * 10_000, "Cut it.")
    assert "\x1b" not in str(error)
    assert "\\x1b[2J" in str(error)
    assert len(str(error)) < 2100
