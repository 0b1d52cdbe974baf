"""The JSON schema of experiment files, for completion and errors in editors.

It says what one key may hold. Rules across keys (an io1 volume needs iops, an engine needs a version) are the loader's.
"""

import json
from collections.abc import Iterator
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from microshard.experiment.matrix import SECTIONS
from microshard.experiment.shape import EXPERIMENT, KeyShape, descriptions
from microshard.model.experiment import Experiment

# Keys below these have an index or a name of the user's in them, so they cannot be listed.
_OPEN_ENDED = (
    r"^(workload\.[0-9]+|topology\.(mongod|collections|zones|network\.compressors|(shards|replica_set)\.members))"
    r"(\.[A-Za-z0-9_-]+)*$"
)


def schema_text() -> str:
    """The text of schema/experiment.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def schema() -> dict[str, Any]:
    """JSON schema, draft 2020-12."""
    made = Experiment.model_json_schema(schema_generator=_Generator)
    _tidy(made)
    definitions = made["$defs"]
    definitions["WorkloadStep"]["oneOf"] = [{"required": [k]} for k in ("load", "warm_up", "measure")]
    _add_axes(definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Made by `microshard schema`.",
        **made,
    }


class _Generator(GenerateJsonSchema):
    """Without titles that only repeat the key."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the parent's signature
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        made = super().model_schema(schema)
        for key, text in descriptions(schema["cls"]).items():
            made["properties"][key]["description"] = text
        return made

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        made = super().default_schema(schema)
        # A mapping's default is that of its keys, which say so themselves.
        if isinstance(made.get("default"), dict):
            made.pop("default")
        return made


def _tidy(node: Any) -> None:
    """Units into the descriptions, where editors show them; open mappings closed; pydantic's own keyword out."""
    if isinstance(node, list):
        for item in node:
            _tidy(item)
    if not isinstance(node, dict):
        return
    for value in node.values():
        _tidy(value)
    if "oneOf" in node:
        node.pop("discriminator", None)
    if "patternProperties" in node:
        node.setdefault("additionalProperties", False)
    # A mapping of the file may itself have a key named "properties".
    if node.get("type") == "object" and isinstance(node.get("properties"), dict):
        for value in node["properties"].values():
            _describe(value)


def _describe(node: dict[str, Any]) -> None:
    """A key's description on one line, with its unit."""
    units = [option.pop("unit", "") for option in (node, *node.get("anyOf", ()))]
    text = node.get("description", "")
    unit = next(filter(None, units), "")
    if unit:
        text = f"{text.rstrip('.')}. Unit: {unit}."
    if text:
        node["description"] = text


def _add_axes(definitions: dict[str, Any]) -> None:
    """The axes of the matrix by name, each with the type of its key; also without `axes:` around them."""
    keys = {key: ref for section in SECTIONS for key, ref in _keys(section)}
    values = {"type": "array", "minItems": 1, "maxItems": 10_000}
    axes = {key: {**values, "items": {"$ref": ref}} for key, ref in keys.items()}
    definitions["Axes"] = _closed("Dotted key of the experiment → values.", axes, values)
    definitions["Point"] = _closed(
        "Dotted key of the experiment → value.", {key: {"$ref": ref} for key, ref in keys.items()}, {}
    )
    matrix = definitions["Matrix"]
    own = matrix["properties"]
    for name in ("axes", "zip"):
        own[name] = {"description": own[name]["description"], "$ref": "#/$defs/Axes"}
    for name in ("include", "exclude"):
        own[name] = {**own[name], "items": {"$ref": "#/$defs/Point"}}
    matrix["properties"] = {**own, **axes}
    matrix["patternProperties"] = {_OPEN_ENDED: values}
    # Either all axes are under `axes` or none is.
    matrix["dependentSchemas"] = {"axes": {"propertyNames": {"enum": list(own)}}}


def _closed(description: str, properties: dict[str, Any], pattern_value: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "patternProperties": {_OPEN_ENDED: pattern_value},
        "additionalProperties": False,
    }


def _keys(section: str) -> Iterator[tuple[str, str]]:
    """Dotted keys below a section → where the schema of each is."""

    def below(prefix: str, shape: KeyShape) -> Iterator[tuple[str, str]]:
        if shape.model is None:
            return
        for key, child in shape.keys().items():
            yield f"{prefix}.{key}", f"#/$defs/{shape.model.__name__}/properties/{key}"
            yield from below(f"{prefix}.{key}", child)

    yield from below(section, EXPERIMENT.keys()[section])
