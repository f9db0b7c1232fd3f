"""Base of every config and record: frozen, strict about field names, canonical as JSON."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from shadow_model.errors import ConfigError

NOT_IN_KEY: dict[str, Any] = {"in_key": False}
"""`Field(json_schema_extra=NOT_IN_KEY)` marks a field that cannot change a result (a path, say)."""


class Schema(BaseModel):
    """A frozen pydantic model that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, data: Mapping[str, Any], where: object) -> Self:
        """Validate outside data; every problem is reported at once.

        Raises:
            ConfigError: Fields are unknown, missing or of the wrong type; `where` is named.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            problems = [_problem(cls, dict(e)) for e in error.errors(include_url=False)]
            raise ConfigError(
                where, f"be a valid {cls.__name__}", "; ".join(problems), "Correct these fields."
            ) from error

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with some fields changed; unknown names raise ConfigError."""
        return type(self).parse({**dict(self), **changes}, type(self).__name__)

    def key_fields(self) -> dict[str, Any]:
        """Return the JSON form of every field that can change a result, nested ones included."""
        return {
            name: _key_value(getattr(self, name))
            for name, field in type(self).model_fields.items()
            if not _left_out(field)
        }


def canonical_json(value: Any) -> str:
    """One text for equal values: sorted keys, no spaces, no NaN."""
    return json.dumps(_key_value(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _key_value(value: Any) -> Any:
    if isinstance(value, Schema):
        return value.key_fields()
    if isinstance(value, Mapping):
        return {str(k): _key_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_key_value(v) for v in value]
    if isinstance(value, Path):
        return value.as_posix()
    return value


def _left_out(field: FieldInfo) -> bool:
    extra = field.json_schema_extra
    return isinstance(extra, Mapping) and extra.get("in_key") is False


def _problem(cls: type[BaseModel], error: dict[str, Any]) -> str:
    field = ".".join(str(part) for part in error["loc"]) or "(whole)"
    if error["type"] != "extra_forbidden":
        return f"{field} = {error.get('input')!r}: {error['msg']}"
    names = sorted(_field_names(cls, error["loc"][:-1]))
    near = difflib.get_close_matches(str(error["loc"][-1]), names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else f" (known here: {', '.join(names)})"
    return f"unknown field {field!r}{hint}"


def _field_names(cls: type[BaseModel], path: Sequence[int | str]) -> set[str]:
    """Return the fields known at `path`: positions in lists and tags of unions name no field."""
    found = {cls}
    for part in path:
        fields = [model.model_fields[part] for model in found if part in model.model_fields]
        inner = {model for field in fields for model in _models(field.annotation)}
        found = inner or found
    return {name for model in found for name in model.model_fields}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
