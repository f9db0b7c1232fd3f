"""The exported model: one file with all that reading and generating need, nothing of training.

A safetensors file of the format version below:

    body.<weight>      (ceil(cells / 5),) uint8   ternary signs, five to a byte (nn/trits.py)
    scale.<weight>     () float32                 what a sign is worth
    float.<name>       as trained                 the few numbers that are not ternary: alpha...
    table.bits         (R, 64) uint8              the rows' codes, eight bits to a byte
    packed.<name>      (bytes,) uint8             LZMA of: bias (R,) float32, lang_old_ids
                       (num_lang,) int64, the word pieces' own file, codec.<kind> (safetensors)

and as metadata one JSON text `shadow`: format version, model config, layout, what the weights are
of, codec configs, the ending of the pieces' file. Memories of n-grams stand beside it in files of
their own (nn/memory_file.py).

Read back, the model computes the forward of training: where its products are of integers bit for
bit, on a CPU in int8 if the processor can.
"""

import json
import lzma
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from torch import Tensor

from shadow_model.data.clip import ClipCodec
from shadow_model.data.codec import Codec
from shadow_model.data.media import MEDIA_KINDS, MediaCodec, MediaKind
from shadow_model.data.picture import PictureCodec
from shadow_model.data.sound import SoundCodec
from shadow_model.data.text import Pieces
from shadow_model.errors import CheckpointError, ConfigError
from shadow_model.nn.config import ModelConfig
from shadow_model.nn.linear import SharedInput
from shadow_model.nn.model import Shadow
from shadow_model.nn.trits import pack_trits, unpack_trits
from shadow_model.schema import Schema, canonical_json
from shadow_model.store import write_whole
from shadow_model.table.canonical import canonical_of_table
from shadow_model.table.layout import Layout
from shadow_model.table.store import BITS, Table
from shadow_model.train.checkpoint import Weights

VERSION = 1
MODEL_FILE = "model.shadow"
_STATED = "shadow"
_FIX = "Export the model again."
_ROWS = "rows."
_CODECS: Mapping[MediaKind, type[Codec[Any]]] = {
    "picture": PictureCodec,
    "sound": SoundCodec,
    "clip": ClipCodec,
}


class Stated(Schema):
    """What an exported file says of itself."""

    version: Literal[1] = Field(1, description="format version of the file")
    tag: str = Field(description="arm of the comparison")
    model: ModelConfig
    layout: Layout
    loops: int = Field(ge=1, description="passes over the core that the weights were trained with")
    sparse: bool = Field(False, description="whether it was last trained with sparse attention")
    step: int = Field(ge=0, description="updates done")
    tokens: int = Field(ge=0, description="tokens trained on")
    table_sha256: str = Field(description="sha256 of the table.npz that the weights belong to")
    shapes: dict[str, tuple[int, int]] = Field(description="weight -> outputs, inputs")
    codecs: dict[MediaKind, dict[str, Any]] = Field(description="config of each kind's codec")
    pieces: str | None = Field(description="ending of the pieces' file: .model or .json")


class Exported(NamedTuple):
    """A file read back; the model is in evaluation mode and learns no more."""

    stated: Stated
    model: Shadow
    table: Table
    pieces: Pieces | None
    codecs: dict[MediaKind, MediaCodec]


class Size(NamedTuple):
    """Bytes of an exported file.

    Attributes:
        file: Of it all.
        body: Of the signs and their scales.
        table: Of codes, bias and old ids.
        pieces: Of the word pieces.
        codecs: Of the codecs.
        bits_per_weight: Of a ternary weight, its share of the scale included.
    """

    file: int
    body: int
    table: int
    pieces: int
    codecs: int
    bits_per_weight: float


def write_export(
    path: Path,
    model: Shadow,
    weights: Weights,
    table: Table,
    pieces: Pieces | None = None,
    codecs: Mapping[MediaKind, MediaCodec] | None = None,
    sparse: bool = False,
) -> Size:
    """Write a model's file, whole or not at all, and its memories' files beside it.

    Args:
        path: Of the file.
        model: The model, quantised and refreshed.
        weights: What its weights are of.
        table: The table that they belong to.
        pieces: The word pieces of its language rows.
        codecs: Of the kinds that it was trained on.
        sparse: Whether it was last trained with sparse attention.

    Raises:
        ConfigError: The model is not quantised: it has no ternary form.
    """
    if not weights.model.quantise:
        raise ConfigError("model.quantise", "be true for export", False, "Train with quantisers.")
    shapes = {name: _shape(product, i) for name, product, i in _ternary(model)}
    codecs = codecs or {}
    stated = Stated(
        tag=weights.tag,
        model=weights.model,
        layout=table.layout,
        loops=weights.loops,
        sparse=sparse,
        step=weights.step,
        tokens=weights.tokens,
        table_sha256=weights.table_sha256,
        shapes=shapes,
        codecs={kind: codec.config.model_dump(mode="json") for kind, codec in codecs.items()},
        pieces=pieces.suffix if pieces else None,
    )
    tensors = {
        **dict(_body_tensors(model)),
        **{f"float.{name}": tensor for name, tensor in _floats(model)},
        "table.bits": torch.from_numpy(np.packbits(table.bits, axis=1)),
        **dict(_packed_tensors(table, pieces, codecs)),
    }
    metadata = {_STATED: canonical_json(stated)}
    content = safetensors.torch.save({n: t.contiguous() for n, t in tensors.items()}, metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
    model.export_memories(path.parent)
    return _size(tensors, len(content), sum(rows * width for rows, width in shapes.values()))


def load_export(path: Path) -> Exported:
    """Read an exported file, and the memories beside it where the model has some.

    Raises:
        CheckpointError: It is no such file, is damaged, or of an unknown version.
    """
    stated, tensors = _read(path)
    table = _table(stated, tensors)
    pieces = _pieces(stated, tensors)
    codecs = {kind: _codec(kind, config, tensors) for kind, config in stated.codecs.items()}
    canonical = None
    if stated.model.num_memories:
        canonical = canonical_of_table(table.layout, table.lang_old_ids, pieces)
    model = Shadow(stated.model, table, canonical=canonical)
    _fill(model, stated, tensors, path)
    if stated.model.num_memories:
        model.load_memories(path.parent)
    return Exported(stated, model.eval(), table, pieces, codecs)


def _ternary(model: Shadow) -> Iterator[tuple[str, SharedInput, int]]:
    """Yield each ternary weight's name, the product that it is a member of, and its place there."""
    names = {id(module): name for name, module in model.named_modules()}
    for module in model.modules():
        if isinstance(module, SharedInput):
            for place, member in enumerate(module.members):
                yield f"{names[id(member)]}.weight", module, place


def _shape(product: SharedInput, place: int) -> tuple[int, int]:
    signs, _ = product.form(place)
    return len(signs), signs.shape[1]


def _body_tensors(model: Shadow) -> Iterator[tuple[str, Tensor]]:
    for name, product, place in _ternary(model):
        signs, scale = product.form(place)
        yield f"body.{name}", pack_trits(signs.flatten().cpu())
        yield f"scale.{name}", scale.float().cpu()


def _floats(model: Shadow) -> Iterator[tuple[str, Tensor]]:
    ternary = {name for name, _, _ in _ternary(model)}
    for name, tensor in model.state_dict().items():
        if name not in ternary and name != "canonical" and _ROWS not in name:
            yield name, tensor.detach().cpu()


def _packed_tensors(
    table: Table, pieces: Pieces | None, codecs: Mapping[MediaKind, MediaCodec]
) -> Iterator[tuple[str, Tensor]]:
    yield "packed.bias", _pack(table.bias.astype("<f4").tobytes())
    yield "packed.lang_old_ids", _pack(table.lang_old_ids.astype("<i8").tobytes())
    if pieces is not None:
        yield "packed.pieces", _pack(pieces.content)
    for kind, codec in codecs.items():
        arrays = {name: np.ascontiguousarray(a) for name, a in codec.compact().items()}
        yield f"packed.codec.{kind}", _pack(safetensors.numpy.save(arrays))


def _pack(content: bytes) -> Tensor:
    packed = lzma.compress(content, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64)
    return torch.frombuffer(bytearray(packed), dtype=torch.uint8)


def _unpack(tensor: Tensor) -> bytes:
    return lzma.decompress(tensor.numpy().tobytes())


def _size(tensors: Mapping[str, Tensor], file: int, num_weights: int) -> Size:
    def of(*starts: str) -> int:
        return sum(t.nbytes for name, t in tensors.items() if name.startswith(starts))

    body = of("body.", "scale.")
    table = of("table.", "packed.bias", "packed.lang_old_ids")
    bits = 8 * body / num_weights
    return Size(file, body, table, of("packed.pieces"), of("packed.codec."), round(bits, 4))


def _read(path: Path) -> tuple[Stated, dict[str, Tensor]]:
    must = f"be an exported model of version {VERSION}"
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_STATED, "")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return Stated.parse(json.loads(text), path), tensors
    except (OSError, SafetensorError, ValueError, ConfigError) as error:
        raise CheckpointError(path, must, error, _FIX) from error


def _table(stated: Stated, tensors: Mapping[str, Tensor]) -> Table:
    bits = np.unpackbits(tensors["table.bits"].numpy(), axis=1, count=BITS)
    bias = np.frombuffer(_unpack(tensors["packed.bias"]), "<f4")
    old_ids = np.frombuffer(_unpack(tensors["packed.lang_old_ids"]), "<i8")
    return Table(bits, bias.copy(), stated.layout, old_ids.copy())


def _pieces(stated: Stated, tensors: Mapping[str, Tensor]) -> Pieces | None:
    if stated.pieces is None:
        return None
    return Pieces.parse(_unpack(tensors["packed.pieces"]), stated.pieces)


def _codec(kind: MediaKind, config: dict[str, Any], tensors: Mapping[str, Tensor]) -> MediaCodec:
    codec = _CODECS[kind]
    arrays = safetensors.numpy.load(_unpack(tensors[f"packed.codec.{kind}"]))
    return codec.from_compact(codec.config_type.parse(config, kind), arrays)


@torch.no_grad()
def _fill(model: Shadow, stated: Stated, tensors: Mapping[str, Tensor], path: Path) -> None:
    own = dict(_floats(model))
    expected = {f"float.{name}" for name in own}
    expected |= {f"{part}.{name}" for name, _, _ in _ternary(model) for part in ("body", "scale")}
    found = {name for name in tensors if name.startswith(("float.", "body.", "scale."))}
    if expected != found:
        wrong = ", ".join(sorted(expected ^ found))
        raise CheckpointError(path, "hold exactly the weights of its config", wrong, _FIX)
    for name, tensor in model.state_dict().items():
        if name in own:
            tensor.copy_(tensors[f"float.{name}"])
    forms: dict[SharedInput, list[tuple[Tensor, Tensor]]] = {}
    for name, product, _ in _ternary(model):
        shape = stated.shapes[name]
        signs = unpack_trits(tensors[f"body.{name}"], shape[0] * shape[1]).view(shape).float()
        forms.setdefault(product, []).append((signs, tensors[f"scale.{name}"]))
    for product, of_members in forms.items():
        product.fix(of_members)
    model.refresh()


assert set(_CODECS) == set(MEDIA_KINDS)
