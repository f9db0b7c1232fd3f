"""Text <-> pieces: sentencepiece BPE with byte fallback, or a tokenizer that the user has.

Nothing is lost: `decode(encode(text)) == text` for every text that UTF-8 can hold. Three choices
make it so: no normalisation, no dummy space before the text (it could not be told from a real one),
and U+2581, which the models use to write a space, goes by its three bytes.

Source: Kudo & Richardson 2018, "SentencePiece"; byte fallback as in Touvron et al. 2023, section 2.
"""

import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import sentencepiece
from tokenizers import Tokenizer

from shadow_model.errors import DataError
from shadow_model.reading import parse_json, reading
from shadow_model.table.layout import MAX_OLD_IDS

SPACE_SIGN = "\u2581"
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_RESERVED = re.compile("[\u2581\u2585\0]")  # signs that sentencepiece keeps for itself
_MAX_LINE_BYTES = 1 << 20
_MAX_THREADS = 16
_QUIET = 2


class _Backend(Protocol):
    """What both kinds of tokenizer offer."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]: ...

    def spellings(self) -> list[bytes | None]:
        """Return the UTF-8 bytes of each piece; None for special ones, which spell nothing."""
        ...

    def byte_ids(self) -> Sequence[int]:
        """Return the ids of the 256 byte pieces; empty where the tokenizer has them not all."""
        ...


class Pieces:
    """A tokenizer: text to ids of pieces and back.

    Attributes:
        byte_ids: (256,) int32, the piece of each byte; (0,) where the tokenizer has them not all.
    """

    def __init__(self, backend: _Backend, content: bytes, suffix: str) -> None:
        self._backend, self._content = backend, content
        self._spelling = backend.spellings()
        self.suffix = suffix
        self.byte_ids = np.asarray(backend.byte_ids(), np.int32)

    @classmethod
    def train(cls, texts: Iterable[str], num_pieces: int) -> Self:
        """Learn BPE pieces; equal texts in equal order give equal pieces.

        Args:
            texts: Documents to learn from; all of them are held in memory by the trainer.
            num_pieces: Pieces wanted, the 256 bytes included; a small text yields fewer.

        Raises:
            DataError: The texts hold nothing to learn from.
        """
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_lines(texts),
                model_writer=model,
                model_type="bpe",
                vocab_size=num_pieces,
                hard_vocab_limit=False,
                byte_fallback=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                add_dummy_prefix=False,
                allow_whitespace_only_pieces=True,
                max_sentence_length=_MAX_LINE_BYTES,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                num_threads=min(_MAX_THREADS, os.cpu_count() or 1),
                minloglevel=_QUIET,
            )
        except RuntimeError as error:
            must = f"hold enough to learn {num_pieces} pieces from"
            raise DataError("texts", must, error, "Add text, or lower num_pieces.") from error
        return cls(_SentencePiece(model.getvalue()), model.getvalue(), ".model")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a sentencepiece .model or a tokenizer.json; it is taken as it is.

        Raises:
            DataError: The file is absent or neither of the two.
        """
        fix = "Name a sentencepiece .model or a tokenizer.json."
        with reading(DataError, path, "be a tokenizer", fix, Exception):
            return cls.parse(path.read_bytes(), path.suffix)

    @classmethod
    def parse(cls, content: bytes, suffix: str) -> Self:
        """Build pieces from the bytes of their file, a tokenizer.json where it ends in .json."""
        if suffix == ".json":
            return cls(_HuggingFace(content), content, ".json")
        return cls(_SentencePiece(content), content, ".model")

    @property
    def content(self) -> bytes:
        """The bytes of the tokenizer's own file."""
        return self._content

    def save(self, path: Path) -> None:
        """Write the tokenizer's file, byte for byte the one it was read from."""
        path.write_bytes(self._content)

    @property
    def size(self) -> int:
        """Number of pieces."""
        return len(self._spelling)

    def encode(self, text: str) -> np.ndarray:
        """Return the pieces of a text: (N,) int32."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the pieces of each text; faster than one by one."""
        return self._backend.encode(texts)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of pieces; what is no UTF-8 becomes U+FFFD, special pieces nothing."""
        return b"".join(self._spelling[i] or b"" for i in ids).decode("utf-8", "replace")

    def piece_text(self, piece: int) -> str:
        """Return what one piece spells, with real spaces; a part of a character as U+FFFD."""
        return (self._spelling[piece] or b"").decode("utf-8", "replace")

    def num_bytes(self, piece: int) -> int:
        """Return how many bytes of text one piece spells; 0 if it is special."""
        return len(self._spelling[piece] or b"")

    def byte_expansion(self, piece: int) -> list[int]:
        """Return the byte pieces that spell a piece; [] if it is special or there are none."""
        spelling = self._spelling[piece]
        if spelling is None or not len(self.byte_ids):
            return []
        return [int(self.byte_ids[byte]) for byte in spelling]


class _SentencePiece:
    def __init__(self, model: bytes) -> None:
        if not model:
            raise ValueError("an empty file")
        self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._byte_ids = self._find_byte_ids()

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        sign = [self._byte_ids[byte] for byte in SPACE_SIGN.encode()] if self._byte_ids else None
        parts = [text.split(SPACE_SIGN) if sign else [text] for text in texts]
        flat = [part for of_text in parts for part in of_text]
        coded = iter(self._model.encode(flat, out_type=int, add_bos=False, add_eos=False))
        return [_join([next(coded) for _ in of_text], sign or []) for of_text in parts]

    def spellings(self) -> list[bytes | None]:
        return [self._spelling(piece) for piece in range(self._model.get_piece_size())]

    def byte_ids(self) -> list[int]:
        return self._byte_ids

    def _find_byte_ids(self) -> list[int]:
        ids = [self._model.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        return ids if all(self._model.is_byte(i) for i in ids) else []

    def _spelling(self, piece: int) -> bytes | None:
        model, text = self._model, str(self._model.id_to_piece(piece))
        if model.is_control(piece) or model.is_unknown(piece) or model.is_unused(piece):
            return None
        return _spell(text) if model.is_byte(piece) else text.replace(SPACE_SIGN, " ").encode()


class _HuggingFace:
    def __init__(self, content: bytes) -> None:
        description = parse_json(content)
        self._model = Tokenizer.from_buffer(content)
        self._byte_level = _mentions(description.get("decoder"), "ByteLevel")
        added = description.get("added_tokens") or []
        self._special = {token["id"] for token in added if token.get("special")}

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        coded = self._model.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.asarray(one.ids, np.int32) for one in coded]

    def spellings(self) -> list[bytes | None]:
        vocabulary = self._model.get_vocab(with_added_tokens=True)
        highest = max(vocabulary.values(), default=-1)
        if highest >= MAX_OLD_IDS:
            raise ValueError(f"it has a piece of id {highest}, not below {MAX_OLD_IDS}")
        spelling: list[bytes | None] = [None] * (highest + 1)
        for text, piece in vocabulary.items():
            if piece not in self._special:
                spelling[piece] = _spell_signs(text) if self._byte_level else _spell(text)
        return spelling

    def byte_ids(self) -> list[int]:
        signs = _byte_signs()
        names = signs if self._byte_level else [f"<0x{byte:02X}>" for byte in range(256)]
        ids = [self._model.token_to_id(name) for name in names]
        return [] if None in ids else [int(piece) for piece in ids if piece is not None]


def _spell(piece: str) -> bytes:
    """Return the bytes of a piece that writes a space as U+2581 and a byte as <0x0A>."""
    if byte := _BYTE_PIECE.fullmatch(piece):
        return bytes([int(byte[1], 16)])
    return piece.replace(SPACE_SIGN, " ").encode()


def _spell_signs(piece: str) -> bytes:
    """Return the bytes of a byte-level piece; an added token may hold other signs: as they are."""
    byte_of = _byte_of_sign()
    if all(sign in byte_of for sign in piece):
        return bytes(byte_of[sign] for sign in piece)
    return piece.encode()


@lru_cache(maxsize=1)
def _byte_of_sign() -> dict[str, int]:
    return {sign: byte for byte, sign in enumerate(_byte_signs())}


@lru_cache(maxsize=1)
def _byte_signs() -> tuple[str, ...]:
    """Return the printable sign by which byte-level BPE writes each of the 256 bytes.

    Source: Radford et al. 2019 (GPT-2), `bytes_to_unicode` of its encoder.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


def _mentions(node: Any, kind: str) -> bool:
    """Tell whether a part of a tokenizer's description, or a part of that, is of some type."""
    if isinstance(node, dict):
        return node.get("type") == kind or any(_mentions(part, kind) for part in node.values())
    return isinstance(node, list) and any(_mentions(part, kind) for part in node)


def _join(parts: list[list[int]], between: list[int]) -> np.ndarray:
    ids = list(parts[0])
    for part in parts[1:]:
        ids += between
        ids += part
    return np.asarray(ids, np.int32)


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines to learn from, without the signs that would make the trainer skip them."""
    for text in texts:
        for line in text.splitlines():
            if line := _RESERVED.sub("", line):
                yield line
