"""The command line hands the right flow and parameters on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows import cli

Launched = list[tuple[str, Mapping[str, Any], Path]]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    """What would have been started."""
    calls: Launched = []
    monkeypatch.setattr(cli, "launch", lambda *call, **_told: calls.append(call))
    return calls


@pytest.mark.parametrize(
    ("arguments", "flow", "given"),
    [
        (["run"], "proof", {"recipe": "tiny"}),
        (["run", "small", "--tokens", "5000", "--seed", "3"], "proof", {"tokens": 5000, "seed": 3}),
        (["run", "--data", "books", "--hours", "1.5"], "proof", {"data": "books", "hours": 1.5}),
        (["control", "full"], "control", {"recipe": "full"}),
        (["run", "--force", "pack"], "proof", {"force": "pack"}),
        (["prepare", "mine.toml"], "prepare", {"recipe": "mine.toml"}),
        (["smoke"], "smoke", {"recipe": "tiny"}),
        (["speed", "full"], "speed", {"recipe": "full"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_commands_start_their_flow(
    launched: Launched, arguments: list[str], flow: str, given: dict[str, Any]
) -> None:
    result = CliRunner().invoke(cli.app, [*arguments, "--store", "here"])
    assert result.exit_code == 0, result.output
    ((name, parameters, store),) = launched
    assert (name, store) == (flow, Path("here"))
    assert given.items() <= parameters.items()


@pytest.mark.parametrize(
    ("arguments", "command", "given"),
    [
        (["plan", "small", "--force", "table"], "plan", {"recipe": "small", "force": "table"}),
        (["plan", "--flow", "prepare"], "plan", {"recipe": "tiny", "flow": "prepare"}),
        (["accept", "table", "--reason", "same"], "accept", {"stage": "table", "reason": "same"}),
        (["gc"], "gc", {"keep": 5, "apply": False}),
        (["gc", "--keep", "2", "--apply"], "gc", {"keep": 2, "apply": True}),
        (["generate", "a cat", "--kind", "sound"], "generate", {"prompt": "a cat", "int8": True}),
        (["generate", "", "--no-int8", "--num", "3"], "generate", {"int8": False, "num": 3}),
        (["compare", "a1", "b2", "--out", "c"], "compare", {"runs": ["a1", "b2"]}),
        (["lineage", "a.bin", "--picture", "b.svg"], "lineage", {"file": "a.bin"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_commands_on_the_cache_start_no_flow(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], command: str, given: dict[str, Any]
) -> None:
    calls: list[tuple[str, Mapping[str, Any], Path, str]] = []
    monkeypatch.setattr(cli, "launch", lambda *call, **_told: calls.append(call))
    result = CliRunner().invoke(cli.app, [*arguments, "--store", "here"])
    assert result.exit_code == 0, result.output
    ((name, parameters, store, module),) = calls
    assert (name, store) == (command, Path("here"))
    assert module in {cli.FORETELL, cli.UPKEEP, cli.GENERATION}
    assert given.items() <= parameters.items()


@pytest.mark.parametrize(
    "arguments",
    [["run", "--tokens", "0"], ["run", "--toekns", "5"], ["fly"], ["accept", "table"]],
    ids=" ".join,
)
def test_nonsense_starts_nothing(launched: Launched, arguments: list[str]) -> None:
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 2
    assert not launched


@pytest.mark.parametrize(
    ("option", "told"), [([], "normal"), (["-q"], "quiet"), (["--verbose"], "verbose")]
)
def test_how_much_is_told(monkeypatch: pytest.MonkeyPatch, option: list[str], told: str) -> None:
    given: list[Any] = []
    monkeypatch.setattr(cli, "launch", lambda *_call, **more: given.append(more))
    assert CliRunner().invoke(cli.app, ["smoke", *option]).exit_code == 0
    assert given == [{"told": told}]


def test_quiet_and_verbose_exclude_each_other() -> None:
    result = CliRunner().invoke(cli.app, ["run", "-q", "-v"])
    assert result.exit_code == 2
    assert "exclude each other" in result.output
