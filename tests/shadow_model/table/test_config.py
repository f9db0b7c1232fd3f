from pathlib import Path

import pytest

from shadow_model.errors import ConfigError
from shadow_model.table.config import TableConfig


@pytest.mark.parametrize("vectors", ["file", "packed"])
def test_source_without_its_file_is_refused(vectors: str) -> None:
    with pytest.raises(ConfigError, match="needs vectors_path"):
        TableConfig.parse({"vectors": vectors}, "recipe")


def test_paths_stay_out_of_the_key_but_are_listed() -> None:
    config = TableConfig(
        vectors="file",
        vectors_path=Path("/x/m.npy"),
        ratings=Path("r.csv"),
        codebooks={"audio": Path("a.npy")},
    )
    assert "/x" not in str(config.key_fields())
    assert config.files == {
        "vectors_path": Path("/x/m.npy"),
        "ratings": Path("r.csv"),
        "codebooks.audio": Path("a.npy"),
    }


def test_every_field_is_described() -> None:
    assert all(field.description for field in TableConfig.model_fields.values())
