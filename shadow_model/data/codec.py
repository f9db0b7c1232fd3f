"""Codecs: what pictures, sounds and clips share.

An item is cut into a grid of vectors, and each vector becomes one code (codebook.py). The same
items, config and seed give the same codec. A codec is saved as `<kind>.safetensors` and
`<kind>.json`, whose format version and digest are checked when it is loaded.
"""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as dump_tensors
from threadpoolctl import ThreadpoolController

from shadow_model.data.codebook import (
    CodecConfig,
    NeighbourDecoder,
    ResidualCodebook,
    fit_codebook,
    fit_decoder,
)
from shadow_model.errors import DataError
from shadow_model.reading import load_json, reading
from shadow_model.store import write_whole
from shadow_model.table.layout import Kind

CODEC_FORMAT = 1
"""Version of the files that `Codec.save` writes; others are refused."""

ConfigT = TypeVar("ConfigT", bound=CodecConfig)


class Codec(ABC, Generic[ConfigT]):
    """Turns items of one kind into codes and back; built by `fit` or `load`."""

    kind: ClassVar[Kind]
    config_type: ClassVar[type[CodecConfig]]
    offsets: ClassVar[Sequence[tuple[int, ...]]]
    """Where the neighbours stand that decoding looks at, in grid steps."""

    def __init__(
        self, config: ConfigT, codebook: ResidualCodebook, decoder: NeighbourDecoder
    ) -> None:
        self.config = config
        self._codebook = codebook
        self._decoder = decoder

    @classmethod
    def fit(cls, items: Sequence[np.ndarray], config: ConfigT, seed: int) -> Self:
        """Fit a codec to items.

        Args:
            items: Items of this kind; a lazy sequence will do. Where there are more than
                `config.fit_items`, evenly spaced ones are read, each once.
            config: The codec's shape and effort.
            seed: Makes the fit repeatable.

        Raises:
            DataError: There are fewer distinct vectors than first centres.
        """
        count = min(len(items), config.fit_items)
        read = [items[i * len(items) // count] for i in range(count)]
        with _one_thread():
            grids = [cls.to_grid(item, config) for item in read]
            _check_enough(cls.kind, grids, config)
            flat = np.concatenate([grid.reshape(-1, grid.shape[-1]) for grid in grids])
            codebook = fit_codebook(flat, config, seed)
            codes = [_encode_grid(codebook, grid, config) for grid in grids]
            offsets = np.array(cls.offsets, np.int64)
            decoder = fit_decoder(codebook.vectors, offsets, grids, codes, config)
        return cls(config, codebook, decoder)

    @property
    def codebook(self) -> np.ndarray:
        """Return (codes, D) float32: the vector of every code, in code order."""
        return self._decoder.table

    def encode(self, item: np.ndarray) -> np.ndarray:
        """Return the item's codes, (tokens,) int32 in [0, codes)."""
        with _one_thread():
            grid = self.to_grid(item, self.config)
            return _encode_grid(self._codebook, grid, self.config).ravel()

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the item that some codes stand for.

        Raises:
            DataError: A code lies outside the codebook, or their number fills no whole item.
        """
        codes = np.asarray(codes)
        limit = len(self.codebook)
        if codes.ndim != 1 or not len(codes) or codes.min() < 0 or codes.max() >= limit:
            found = f"shape {codes.shape}, range {_range(codes)}"
            fix = f"Pass the codes of one {self.kind}, without marks and offsets."
            raise DataError(
                f"codes of a {self.kind}", f"be a row of whole numbers in [0, {limit})", found, fix
            )
        shape = self.grid_shape(len(codes), self.config)
        if math.prod(shape) != len(codes) or not len(codes):
            must = f"fill a grid of {' x '.join(map(str, shape))}"
            fix = f"Pass all codes of one {self.kind}."
            raise DataError(f"codes of a {self.kind}", must, f"{len(codes)} codes", fix)
        with _one_thread():
            return self.from_grid(self._decoder.decode(codes.reshape(shape)), self.config)

    def save(self, folder: Path) -> None:
        """Write `<kind>.safetensors` (arrays) and then `<kind>.json` (format, config, digest)."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {"first": self._codebook.first, "second": self._codebook.second}
        arrays |= {"features": self._decoder.features, "weight": self._decoder.weight}
        content = dump_tensors({name: np.ascontiguousarray(a) for name, a in arrays.items()})
        record = {
            "format": CODEC_FORMAT,
            "kind": self.kind,
            "config": self.config.model_dump(mode="json"),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        write_whole(folder / f"{self.kind}.safetensors", content)
        text = json.dumps(record, indent=1, sort_keys=True) + "\n"
        write_whole(folder / f"{self.kind}.json", text.encode())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a codec that `save` wrote.

        Raises:
            DataError: A file is absent or altered, or its format version is unknown.
            ConfigError: The stored config is not one of this codec's.
        """
        record = _read_record(folder / f"{cls.kind}.json", cls.kind)
        config: Any = cls.config_type.parse(record["config"], folder / f"{cls.kind}.json")
        path = folder / f"{cls.kind}.safetensors"
        arrays = _read_arrays(path, str(record["sha256"]))
        cls._check_arrays(path, arrays, config)
        codebook = ResidualCodebook(arrays["first"], arrays["second"])
        offsets = np.array(cls.offsets, np.int64)
        parts = (codebook.vectors, arrays["features"], offsets, arrays["weight"])
        return cls(config, codebook, NeighbourDecoder(*parts))

    @classmethod
    def _check_arrays(cls, path: Path, arrays: dict[str, np.ndarray], config: ConfigT) -> None:
        width, rows = cls.vector_width(config), config.num_codes
        components = min(config.components, width)
        shapes = {
            "first": (config.first, width),
            "second": (config.second, width),
            "features": (rows, components),
            "weight": (len(cls.offsets) * components + 1, width),
        }
        fix = "Fit the codec again, or restore the file."
        found = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
        if found != {name: (shape, "float32") for name, shape in shapes.items()}:
            raise DataError(path, f"hold float32 arrays of the shapes {shapes}", found, fix)
        bad = [name for name, array in arrays.items() if not np.isfinite(array).all()]
        if bad:
            raise DataError(path, "be finite", f"a NaN or infinity in {', '.join(bad)}", fix)

    @classmethod
    @abstractmethod
    def vector_width(cls, config: ConfigT) -> int:
        """Return the width of a grid's vectors (D)."""

    def compact(self) -> dict[str, np.ndarray]:
        """Return the arrays of a small file: features are sums of one row of each set of centres.

        What `from_compact` makes of them decodes alike, up to float32's rounding.
        """
        first, second = self._codebook.first, self._codebook.second
        grid = self._decoder.features.reshape(len(first), len(second), -1)
        return {
            "first": first,
            "second": second,
            "features_first": grid[:, 0],
            "features_second": grid[0] - grid[0, 0],
            "weight": self._decoder.weight,
        }

    @classmethod
    def from_compact(cls, config: ConfigT, arrays: Mapping[str, np.ndarray]) -> Self:
        """Build a codec from the arrays of `compact`."""
        codebook = ResidualCodebook(arrays["first"], arrays["second"])
        sums = arrays["features_first"][:, None] + arrays["features_second"]
        features = sums.reshape(-1, sums.shape[-1])
        offsets = np.array(cls.offsets, np.int64)
        parts = (codebook.vectors, features, offsets, arrays["weight"])
        return cls(config, codebook, NeighbourDecoder(*parts))

    @classmethod
    @abstractmethod
    def to_grid(cls, item: np.ndarray, config: ConfigT) -> np.ndarray:
        """Return the item as a grid of vectors, (*grid, D) float32."""

    @classmethod
    @abstractmethod
    def from_grid(cls, grid: np.ndarray, config: ConfigT) -> np.ndarray:
        """Return the item of a grid of vectors, (*grid, D) float32."""

    @classmethod
    @abstractmethod
    def grid_shape(cls, num_codes: int, config: ConfigT) -> tuple[int, ...]:
        """Return the shape of the grid that so many codes of one item fill."""


def psnr(original: np.ndarray, decoded: np.ndarray) -> float:
    """Return the peak signal-to-noise ratio in dB of two arrays of one shape, in [0, 1]."""
    error = np.mean((original.astype(np.float64) - decoded) ** 2)
    return float(-10 * np.log10(error + 1e-12))


def _one_thread() -> AbstractContextManager[Any]:
    """Let the linear algebra inside run in one thread.

    The order of sums, and so every result, must not depend on the machine's cores; and products
    this small lose more time to threads that wait for one another than they gain.
    """
    limit: AbstractContextManager[Any] = _thread_pools().limit(limits=1)
    return limit


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()  # finding the loaded libraries takes milliseconds


def _encode_grid(codebook: ResidualCodebook, grid: np.ndarray, config: CodecConfig) -> np.ndarray:
    flat = grid.reshape(-1, grid.shape[-1])
    return codebook.encode(flat, config.candidates).reshape(grid.shape[:-1])


def _check_enough(kind: Kind, grids: Sequence[np.ndarray], config: CodecConfig) -> None:
    need = max(config.first, config.second) + 1
    distinct: set[bytes] = set()
    for grid in grids:
        distinct.update(row.tobytes() for row in grid.reshape(-1, grid.shape[-1]))
        if len(distinct) >= need:
            return
    found = f"{len(distinct)} in {len(grids)} items"
    fix = f"Add more {kind}s, or lower the codec's first and second."
    raise DataError(f"{kind} codec", f"be fitted to at least {need} distinct vectors", found, fix)


def _range(codes: np.ndarray) -> str:
    return f"[{codes.min()}, {codes.max()}]" if codes.size else "nothing"


def _read_record(path: Path, kind: Kind) -> dict[str, Any]:
    fix = "Fit the codec again with this version."
    must = f"be the record of a {kind} codec of format {CODEC_FORMAT}"
    with reading(DataError, path, must, fix):
        record = load_json(path)
    if not isinstance(record, dict) or not {"format", "kind", "config", "sha256"} <= set(record):
        raise DataError(path, must, "another record", fix)
    if record["format"] != CODEC_FORMAT or record["kind"] != kind:
        found = f"a {record['kind']} codec of format {record['format']}"
        raise DataError(path, must, found, fix)
    return record


def _read_arrays(path: Path, sha256: str) -> dict[str, np.ndarray]:
    fix = "Fit the codec again, or restore the file."
    with reading(DataError, path, "hold a codec's arrays", fix, SafetensorError):
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != sha256:
            raise DataError(path, "have the sha256 that its record states", "another one", fix)
        return dict(parse_tensors(content))
