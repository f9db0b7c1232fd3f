"""`python -m tests.kill --random 100 --saves 50 --flows 5`: kill, compare, print the figures."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.kill.chain import Chain, write_recipe
from tests.kill.trainer import Kills, Trainer


def kill_flows(kills: int, folder: Path, rng: random.Random) -> Kills:
    """Kill the trainer of so many flows; each flow's own retry has to end it."""
    recipe = write_recipe(folder / "recipe")
    whole = Chain(recipe, folder / "whole_flow")
    whole.finish()
    expected, different, killed = whole.outputs(), list[str](), 0
    for i in track(range(kills), "flows"):
        chain = Chain(recipe, folder / f"flow{i}")
        code, output = chain.kill_trainer(rng.uniform(0, 8))
        killed += 1
        different += [f"flow {i}: exit code {code}\n{output[-2000:]}"] if code else []
        found = chain.outputs()
        names = found.keys() | expected.keys()
        different += [f"flow {i}: {n}" for n in names if found.get(n) != expected.get(n)]
        different += [f"flow {i}: left {name}" for name in chain.left_over()]
    return Kills(killed, kills, different)


def main() -> int:
    """Run the kills that were asked for; 1 where any run ended otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("random", "saves", "flows"):
        parser.add_argument(f"--{name}", type=int, default=0, metavar="KILLS")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng, results = random.Random(asked.seed), dict[str, tuple[Kills, float]]()
    with tempfile.TemporaryDirectory() as name:
        folder, began = Path(name), time.monotonic()

        def note(what: str, kills: Kills) -> None:
            nonlocal began
            results[what] = kills, time.monotonic() - began
            began = time.monotonic()

        if asked.random or asked.saves:
            (folder / "trainer").mkdir()
            trainer = Trainer(folder / "trainer")
            began = time.monotonic()
            if asked.random:
                note("trainer, any moment", trainer.kill_at_random(asked.random, rng))
            if asked.saves:
                note("trainer, in a save", trainer.kill_in_saves(asked.saves, rng))
        if asked.flows:
            note("trainer of a flow", kill_flows(asked.flows, folder, rng))
    table = Table("killed", "kills", "runs ended", "ended otherwise", "seconds")
    for what, (kills, seconds) in results.items():
        numbers = (kills.killed, kills.runs, len(kills.different), round(seconds))
        table.add_row(what, *map(str, numbers))
    Console().print(table)
    different = [line for kills, _ in results.values() for line in kills.different]
    sys.stdout.writelines(f"{line}\n" for line in different)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
