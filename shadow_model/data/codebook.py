"""Sums of two centres: the numbers behind every codec.

A vector's code is a pair of centres, one of the vectors and one of the remainders. Both sets are
fitted by k-means and then refined together by least squares, and the pair is searched jointly.
Decoding a grid of codes adds to each sum a ridge regression over the neighbouring codes, which
smooths the joints. Nothing is trained by gradients: a fit takes seconds.

Legend: A first centres, B second centres, D vector width, N vectors, O neighbours, P components.

Source: Chen, Guan and Wang, Approximate Nearest Neighbor Search by Residual Vector Quantization,
Sensors 10(12), 2010, section 3; Babenko and Lempitsky, Additive Quantization, CVPR 2014, section 3.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field
from sklearn.cluster import MiniBatchKMeans

from shadow_model.schema import Schema

_KMEANS_BATCH = 4096
_ENCODE_CHUNK = 8192


class CodecConfig(Schema):
    """What every codec's fit is told."""

    first: int = Field(128, ge=2, le=128, description="first centres (A)")
    second: int = Field(128, ge=2, le=128, description="centres of the remainder (B)")
    fit_items: int = Field(2000, ge=1, le=100_000, description="items read for the fit, at most")
    fit_vectors: int = Field(60_000, ge=256, le=1_000_000, description="vectors in the k-means")
    candidates: int = Field(8, ge=1, le=128, description="first centres tried for each vector")
    refinements: int = Field(6, ge=0, le=100, description="rounds of joint least squares")
    components: int = Field(48, ge=0, le=256, description="components of a neighbour (P), 0: none")
    ridge: float = Field(1e-5, gt=0, le=1, description="ridge, in units of the mean variance")

    @property
    def num_codes(self) -> int:
        """Codes in all (A * B)."""
        return self.first * self.second


class ResidualCodebook(NamedTuple):
    """Two sets of centres; code `i * B + j` stands for `first[i] + second[j]`."""

    first: np.ndarray
    """(A, D) float32."""
    second: np.ndarray
    """(B, D) float32."""

    @property
    def vectors(self) -> np.ndarray:
        """Return (A * B, D) float32: the vector of every code."""
        pairs: np.ndarray = self.first[:, None] + self.second[None]
        return pairs.reshape(-1, self.first.shape[1])

    def encode(self, vectors: np.ndarray, candidates: int) -> np.ndarray:
        """Return the codes nearest to some vectors.

        Args:
            vectors: (N, D) float32.
            candidates: First centres tried for each vector; A makes the search exact.

        Returns:
            (N,) int32 in [0, A * B).
        """
        chunks = range(0, len(vectors), _ENCODE_CHUNK)
        codes = [self._encode_chunk(vectors[i : i + _ENCODE_CHUNK], candidates) for i in chunks]
        return np.concatenate([np.zeros(0, np.int32), *codes])

    def _encode_chunk(self, vectors: np.ndarray, candidates: int) -> np.ndarray:
        # |x - f - s|^2 - |x|^2 = (|f|^2 - 2xf) + (|s|^2 - 2xs) + 2fs
        of_first = (self.first**2).sum(1) - 2 * (vectors @ self.first.T)
        of_second = (self.second**2).sum(1) - 2 * (vectors @ self.second.T)
        joint = 2 * (self.first @ self.second.T)
        best_cost = np.full(len(vectors), np.inf, np.float32)
        best = np.zeros(len(vectors), np.int32)
        rows = np.arange(len(vectors))
        for tried in _smallest(of_first, candidates).T:
            costs = of_second + joint[tried]
            second = costs.argmin(1)
            cost = costs[rows, second] + of_first[rows, tried]
            better = cost < best_cost
            best_cost[better] = cost[better]
            best[better] = (tried * len(self.second) + second)[better]
        return best


def fit_codebook(vectors: np.ndarray, config: CodecConfig, seed: int) -> ResidualCodebook:
    """Fit both sets of centres: k-means, k-means of the remainders, joint least squares.

    Args:
        vectors: (N, D) float32; at most `config.fit_vectors` of them are used, drawn by the seed.
        config: Numbers of centres and effort.
        seed: Seed of the draw and of both k-means.
    """
    drawn = np.random.default_rng(seed).permutation(len(vectors))[: config.fit_vectors]
    sample = vectors[np.sort(drawn)]
    first, labels = _kmeans(sample, config.first, seed)
    second, _ = _kmeans(sample - first[labels], config.second, seed)
    codebook = ResidualCodebook(first, second)
    for _ in range(config.refinements):
        codes = codebook.encode(sample, config.candidates)
        codebook = _least_squares(codebook, sample, codes)
    return codebook


class NeighbourDecoder(NamedTuple):
    """Decodes a grid of codes: each code's vector, corrected by what its neighbours are."""

    table: np.ndarray
    """(A * B, D) float32: the vector of every code."""
    features: np.ndarray
    """(A * B, P) float32: the same, by its leading components."""
    offsets: np.ndarray
    """(O, dimensions of the grid) int64: where the neighbours stand."""
    weight: np.ndarray
    """(O * P + 1, D) float32: the correction; its last row is constant."""

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return (*grid, D) float32 of (*grid) codes."""
        correction = self.neighbours(codes) @ self.weight
        vectors: np.ndarray = self.table[codes] + correction.reshape(*codes.shape, -1)
        return vectors

    def neighbours(self, codes: np.ndarray) -> np.ndarray:
        """Return (codes, O * P + 1) float32: what the correction is computed from."""
        reach = np.abs(self.offsets).max(0)
        padded = np.pad(codes, [(r, r) for r in reach], "edge")
        shifted = [
            padded[tuple(slice(s, s + n) for s, n in zip(reach + o, codes.shape, strict=True))]
            for o in self.offsets
        ]
        features = [self.features[part].reshape(codes.size, -1) for part in shifted]
        return np.concatenate([*features, np.ones((codes.size, 1), np.float32)], axis=1)


def fit_decoder(
    table: np.ndarray,
    offsets: np.ndarray,
    grids: Sequence[np.ndarray],
    codes: Sequence[np.ndarray],
    config: CodecConfig,
) -> NeighbourDecoder:
    """Fit the correction by ridge regression.

    Args:
        table: (A * B, D) float32.
        offsets: (O, dimensions of a grid) int64.
        grids: Items as (*grid, D) float32 vectors.
        codes: The same as (*grid) int32 codes.
        config: Components and ridge.
    """
    centred = table - table.mean(0)
    _, axes = np.linalg.eigh(centred.T.astype(np.float64) @ centred)
    features = (centred @ axes[:, ::-1][:, : config.components]).astype(np.float32)
    size = len(offsets) * features.shape[1] + 1
    decoder = NeighbourDecoder(table, features, offsets, np.zeros((size, table.shape[1]), "f4"))
    gram, moment = np.zeros((size, size)), np.zeros((size, table.shape[1]))
    for grid, code in zip(grids, codes, strict=True):
        rows = decoder.neighbours(code)
        gram += rows.T @ rows
        moment += rows.T @ (grid - table[code]).reshape(code.size, -1)
    ridge = config.ridge * max(np.trace(gram) / size, 1.0)
    weight = np.linalg.solve(gram + ridge * np.eye(size), moment)
    return decoder._replace(weight=weight.astype(np.float32))


def _smallest(costs: np.ndarray, count: int) -> np.ndarray:
    if count >= costs.shape[1]:
        return np.broadcast_to(np.arange(costs.shape[1]), costs.shape)
    return np.argpartition(costs, count - 1, axis=1)[:, :count]


def _kmeans(vectors: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    model = MiniBatchKMeans(count, n_init=1, random_state=seed, batch_size=_KMEANS_BATCH)
    labels = model.fit_predict(vectors)
    return model.cluster_centers_.astype(np.float32), labels


def _least_squares(
    codebook: ResidualCodebook, vectors: np.ndarray, codes: np.ndarray
) -> ResidualCodebook:
    """Move all centres at once to where the vectors given to them are met best."""
    first, second = len(codebook.first), len(codebook.second)
    i, j = np.divmod(codes, second)
    pairs = np.bincount(codes, minlength=first * second).reshape(first, second).astype(np.float64)
    gram = np.block([[np.diag(pairs.sum(1)), pairs], [pairs.T, np.diag(pairs.sum(0))]])
    # the pull towards the old centres keeps unused ones, and settles a shift between the two sets
    old = np.concatenate([codebook.first, codebook.second]).astype(np.float64)
    remainder = vectors - codebook.first[i] - codebook.second[j]
    moment = np.concatenate([_sum_by(i, remainder, first), _sum_by(j, remainder, second)])
    new = old + np.linalg.solve(gram + np.eye(len(gram)), moment)
    return ResidualCodebook(new[:first].astype(np.float32), new[first:].astype(np.float32))


def _sum_by(labels: np.ndarray, vectors: np.ndarray, count: int) -> np.ndarray:
    return np.stack([np.bincount(labels, column, minlength=count) for column in vectors.T], axis=1)
