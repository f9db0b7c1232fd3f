"""What every flow is told: types of its parameters, and how they become a config and a chain.

Top-level parameters only: a partial nested override would replace a whole part of the config.
"""

import difflib
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from shadow_model.config import RunConfig
from shadow_model.errors import ConfigError
from shadow_model.hub.config import HubConfig
from shadow_model.recipes import load
from shadow_model.store import Store
from tasks.chain import Chain
from tasks.foresight import foresee_names

Order = Callable[[Chain, RunConfig], Any]
Tokens = Annotated[int | None, Field(ge=1)]
Seed = Annotated[int | None, Field(ge=0, lt=1 << 31)]
Hours = Annotated[float | None, Field(gt=0)]
Hub = Annotated[str | None, Field(pattern=r"^[^/]+/[^/]+$", max_length=200)]
Force = Annotated[str | None, Field(max_length=64)]

DEFAULT_STORE = ".shadow"
MAX_WORKERS = 4


def bounded_threads() -> Any:
    """Return the runner of batches of shards; Prefect's own default has no bound."""
    return ThreadPoolTaskRunner[Any](max_workers=MAX_WORKERS)


def open_run(
    recipe: str,
    store: str | None,
    *,
    refresh: bool = False,
    hub: str | None = None,
    **overrides: Any,
) -> tuple[RunConfig, Chain]:
    """Return a recipe's config, with the overrides that are not None, and a chain in the store.

    Raises:
        ConfigError: The recipe is unknown, or a field of it cannot be.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    config = load(recipe, **given)
    if hub is not None:
        config = config.replace(hub=HubConfig.parse({"repo": hub}, "hub"))
    return config, Chain(Store(store or DEFAULT_STORE), refresh, hub=config.hub)


def forced(chain: Chain, order: Order, config: RunConfig, stage: str | None) -> Chain:
    """Return the chain that builds `stage` again, and all that reads it; None forces nothing.

    Raises:
        ConfigError: The order has no such stage. Nothing has run then.
    """
    if stage is None:
        return chain
    check_stage(order, config, chain.store, stage)
    return replace(chain, force=stage)


def check_stage(order: Order, config: RunConfig, store: Store, stage: str) -> None:
    """Raise ConfigError unless the order has a stage of that name."""
    names = foresee_names(store, order, config)
    if stage not in names:
        near = difflib.get_close_matches(stage, names, n=1)
        fix = f"Did you mean {near[0]!r}?" if near else "Correct the name."
        raise ConfigError("stage", f"be one of {', '.join(names)}", repr(stage), fix)
