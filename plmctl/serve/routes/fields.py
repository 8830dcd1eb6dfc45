"""The fields that requests have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict


def replace_halves(value: Any) -> Any:
    """The value with U+FFFD for each half of a surrogate pair, which is no text of UTF-8."""
    if isinstance(value, str):
        return (
            value
            if value.isascii()
            else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    if isinstance(value, dict):
        return {replace_halves(key): replace_halves(inner) for key, inner in value.items()}
    return [replace_halves(inner) for inner in value] if isinstance(value, list) else value


class Body(BaseModel):
    """A request whose fields are all known: a slip of a name is not passed over."""

    model_config = ConfigDict(extra="forbid")


def list_texts(given: str | list[str]) -> list[str]:
    """The texts of a request with one or several."""
    return [given] if isinstance(given, str) else given


Text = Annotated[str, AfterValidator(replace_halves)]
Record = Annotated[dict[str, Any], AfterValidator(replace_halves)]
