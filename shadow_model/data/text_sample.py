"""A bounded, even, repeatable sample of a stream of texts."""

import zlib

_HASHES = 1 << 32


class TextSample:
    """Keeps texts up to a size, each with the same chance, by a digest of the text itself.

    When the size is passed, the chance is halved and what no longer passes is dropped; so equal
    streams give equal samples, and a short stream is kept whole.

    Args:
        max_bytes: UTF-8 bytes kept at most.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self._below = max_bytes, _HASHES
        self._kept: list[tuple[int, int, str]] = []
        self._bytes = 0

    def add(self, text: str) -> None:
        """Offer the next text of the stream."""
        content = text.encode()
        digest = zlib.crc32(content)
        if digest < self._below:
            self._kept.append((digest, len(content), text))
            self._bytes += len(content)
        while self._bytes > self._max_bytes and len(self._kept) > 1:
            self._below //= 2
            self._kept = [one for one in self._kept if one[0] < self._below] or self._kept[:1]
            self._bytes = sum(size for _, size, _ in self._kept)

    def texts(self) -> list[str]:
        """Return the texts kept, in the order of the stream."""
        return [text for _, _, text in self._kept]
