"""The JSON Schema of the experiment file's newest spelling, so that editors complete and check it."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from shoal.spec.types import Spec


class _Generator(GenerateJsonSchema):
    """pydantic's generator, less the nulls: a key without a value is an error, not a default."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


def json_schema() -> dict[str, Any]:
    """Draft 2020-12."""
    schema = Spec.model_json_schema(mode="validation", schema_generator=_Generator)
    schema["title"] = "Shoal experiment file"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
