"""The calls of the Hub that a run makes, and which of their failures may pass."""

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils.tqdm import disable_progress_bars

from shadow_model.hub.config import HubConfig


class Repository:
    """One repository of the Hub; endpoint and token are those of huggingface_hub's environment."""

    def __init__(self, config: HubConfig) -> None:
        self.config = config
        self._api = HfApi(library_name="shadow-proof")
        self._made = False
        disable_progress_bars()

    def push(self, files: Mapping[str, Path], message: str) -> str:
        """Write files in one commit, the repository too if need be; unchanged ones are left out.

        Args:
            files: Path in the repository -> local file.

        Returns:
            The commit's id.
        """
        config = self.config
        if not self._made:
            self._api.create_repo(
                config.repo, repo_type=config.repo_type, private=config.private, exist_ok=True
            )
            self._made = True
        adds = [CommitOperationAdd(name, str(path)) for name, path in sorted(files.items())]
        commit = self._api.create_commit(
            config.repo, adds, commit_message=message, repo_type=config.repo_type
        )
        return str(commit.oid)

    def pull(self, pattern: str, folder: Path) -> bool:
        """Copy files into a folder, all of one commit; false where there is no such repository."""
        config = self.config
        try:
            commit = self._api.repo_info(config.repo, repo_type=config.repo_type).sha
        except RepositoryNotFoundError:
            return False
        snapshot_download(
            config.repo,
            repo_type=config.repo_type,
            revision=commit,
            allow_patterns=pattern,
            local_dir=folder,
        )
        return True


def retry_after_s(error: BaseException) -> float | None:
    """Return after how many seconds a failed call may pass; None where it never will."""
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            told = error.response.headers.get("Retry-After", "")
            return float(told) if told.isdecimal() else 0.0
        return None
    if isinstance(error, ConnectionError | TimeoutError) or _is_transport(error):
        return 0.0
    return retry_after_s(error.__cause__) if error.__cause__ else None


def _is_transport(error: BaseException) -> bool:
    """Tell whether a connection failed; huggingface_hub has moved from httpx to httpx2."""
    return any(kind.__name__ == "TransportError" for kind in type(error).__mro__)
