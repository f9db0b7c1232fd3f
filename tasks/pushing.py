"""A training under way and the Hub: gone on with from there, pushed there, never waiting for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect import get_run_logger

from shadow_model.errors import CheckpointError, ShadowError
from shadow_model.hub.checkpoints import checkpoint_files, fetch_checkpoint
from shadow_model.hub.config import HubConfig
from shadow_model.hub.pusher import Pusher
from shadow_model.hub.repository import Repository

LAST_WITHIN_S = 60.0
"""Wait for a push at the end of a training; the finished run is pushed once more, in any case."""


@contextmanager
def pushed(config: HubConfig | None, work: Path, tag: str) -> Iterator[Callable[[], None]]:
    """Fetch a run's checkpoint if it has none here; yield what offers its newest from then on.

    Args:
        config: None: nothing is fetched or pushed.
        work: The run's work folder.
        tag: Name of the run's place in the repository.

    Raises:
        CheckpointError: The checkpoint of the Hub is damaged.
    """
    if config is None:
        yield lambda: None
        return
    repository, logger = Repository(config), get_run_logger()
    _fetch(repository, tag, work)
    pusher = Pusher(repository, work / "staging", config.every_minutes * 60)

    def offer() -> None:
        try:
            if files := checkpoint_files(work, tag):
                pusher.offer(files, f"{tag}, under way")
        except (OSError, ShadowError) as error:  # a checkpoint that is no longer kept, perhaps
            logger.warning("hub: nothing offered: %s", error)

    try:
        yield offer
        offer()
    finally:
        logger.info("hub: %s", pusher.finish(LAST_WITHIN_S).last)


def _fetch(repository: Repository, tag: str, work: Path) -> None:
    logger = get_run_logger()
    try:
        found = fetch_checkpoint(repository, tag, work)
    except CheckpointError:
        raise
    except Exception as error:  # a Hub that cannot be read is no reason not to train
        logger.warning("hub: no checkpoint was read: %s", type(error).__name__)
        return
    if found:
        logger.info("hub: goes on from %s of %s", found.name, repository.config.repo)
