"""From an exported model and a wish to files."""

from pathlib import Path
from typing import NamedTuple

from shadow_model.errors import CheckpointError
from shadow_model.export import load_export
from shadow_model.generate.decode import generate, reader_of
from shadow_model.generate.grammar import Grammar
from shadow_model.generate.sampling import Sampling
from shadow_model.generate.writer import Writer, write_document
from shadow_model.nn.kernels import int8_product
from shadow_model.table.layout import Kind


class Document(NamedTuple):
    """What was made: its text, items by the names of their files, and all files."""

    text: str
    files: list[Path]


class Made(NamedTuple):
    """All that was made, rows a second, and whether the products were of int8."""

    documents: list[Document]
    tokens_per_s: float
    int8: bool
    loops: int


def make(
    model: Path,
    out: Path,
    prompt: str,
    wanted: Kind,
    max_rows: int,
    sampling: Sampling,
    num: int = 1,
    int8: bool = True,
) -> Made:
    """Generate documents and write them.

    Args:
        model: An exported model's file.
        out: Folder for the files, made if absent.
        prompt: First words, or the caption of what is wanted.
        wanted: What follows the prompt at once.
        max_rows: Most rows of each document.
        sampling: How rows are drawn.
        num: Documents from the same prompt.
        int8: Multiply in int8 if this processor can; the rows are the same.

    Raises:
        CheckpointError: The file is no exported model, or holds no word pieces.
        DataError: The prompt cannot be spelt, or what is wanted not be made within max_rows.
    """
    exported = load_export(model)
    if exported.pieces is None:
        fix = "Export it with the table stage's pieces."
        raise CheckpointError(model, "hold word pieces", "none", fix)
    exported.model.use_int8(int8)
    writer = Writer(exported.table, exported.pieces, exported.codecs)
    grammar = Grammar(exported.table.layout, writer.limits)
    begun = writer.prompt(prompt, wanted)
    found = generate(reader_of(exported), grammar, [begun] * num, max_rows, sampling)
    documents = []
    for number, rows in enumerate(found.rows):
        parts = writer.parts([*begun, *rows])
        files = write_document(out, f"{wanted}_{sampling.seed + number}", parts, writer)
        documents.append(Document(files[0].read_text(encoding="utf-8").strip(), files))
    used = int8 and int8_product is not None and exported.stated.model.integer_products
    return Made(documents, found.tokens_per_s, used, exported.stated.loops)
