"""A key follows what was read, the config and the code: never paths, times or machine names."""

from pathlib import Path

import pytest
from pydantic import Field, ValidationError

from shadow_model.receipt import FileRecord, Identity, Receipt, installed_versions
from shadow_model.schema import NOT_IN_KEY, Schema

MODULES = ["shadow_model.table.store"]


class Config(Schema):
    seed: int = 0
    path: Path | None = Field(None, json_schema_extra=NOT_IN_KEY)


def receipt(sha256: str = "a" * 64, **changes: object) -> Receipt:
    """Return a receipt of one output."""
    fields: dict[str, object] = {
        "stage": "sources",
        "key": "k1",
        "outputs": (FileRecord(name="ids/a.npz", sha256=sha256, bytes=10),),
        **changes,
    }
    return Receipt.model_validate(fields)


def identity(
    inputs: tuple[Receipt, ...] = (receipt(),), stage: str = "pack", **config: object
) -> Identity:
    return Identity.of(stage, inputs, config or {"pack": Config()}, MODULES, {"torch": "2"})


def test_key_is_stable_and_short() -> None:
    assert identity().key == identity().key
    assert len(identity().key) == 32
    int(identity().key, 16)


def test_paths_times_hosts_and_keys_of_inputs_do_not_enter_the_key() -> None:
    elsewhere = receipt(key="k2", started="2026-01-01", host="b", seconds=9.0, counts={"x": 1})
    assert identity((elsewhere,)).key == identity().key
    assert identity(pack=Config(path=Path("/a"))).key == identity(pack=Config(path=Path("/b"))).key
    nested = [{"arms": (Config(path=Path(p)), Config(seed=1))} for p in ("/a", "/b")]
    assert identity(x=nested[0]).key == identity(x=nested[1]).key


@pytest.mark.parametrize(
    "other",
    [
        identity(stage="remap"),
        identity((receipt("b" * 64),)),
        identity((receipt(outputs=(FileRecord(name="b", sha256="a" * 64, bytes=10),)),)),
        identity((receipt(), receipt())),
        identity(()),
        identity(pack=Config(seed=1)),
        identity(other=Config()),
        identity().replace(environment={"torch": "3"}),
        identity().replace(code={"m": "0"}),
    ],
)
def test_all_that_decides_a_result_enters_the_key(other: Identity) -> None:
    assert other.key != identity().key


def test_config_without_stable_identity_is_refused() -> None:
    with pytest.raises(TypeError):
        identity(names={"b", "a"})
    with pytest.raises(ValueError, match="JSON compliant"):
        identity(weight=float("nan"))


def test_receipt_survives_json_and_gives_its_key_again() -> None:
    made = identity(pack=Config(seed=3), sizes=(1, 2))
    written = Receipt(**made.model_dump(), key=made.key).model_dump_json()
    read = Receipt.model_validate_json(written)
    again = Identity.model_validate({n: getattr(read, n) for n in Identity.model_fields})
    assert again.key == made.key


def test_input_record_follows_names_and_contents() -> None:
    record = receipt().as_input()
    assert (record.stage, record.key, record.bytes) == ("sources", "k1", 10)
    assert record.sha256 != receipt("b" * 64).as_input().sha256


def test_output_is_found_by_name() -> None:
    assert receipt().output("ids/a.npz").bytes == 10
    with pytest.raises(KeyError):
        receipt().output("other")


def test_unknown_version_and_field_are_refused() -> None:
    with pytest.raises(ValidationError, match="version"):
        receipt(version=2)
    with pytest.raises(ValidationError, match="colour"):
        receipt(colour="red")


def test_versions_name_what_computes() -> None:
    assert {"python", "numpy", "torch"} <= set(installed_versions())
