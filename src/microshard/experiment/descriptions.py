"""What the keys of the experiment file mean: the docstrings below the fields of its models.

Read when the schema and the reference are written. Pydantic would read them (use_attribute_docstrings) whenever the
models are imported, which is a third of the time that takes, in every command and at the start of every engine.
"""

from __future__ import annotations

import ast
import inspect
import itertools

from pydantic import BaseModel


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Field → its docstring on one line, of the model and of those it is derived from; none for fields without one."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            found |= _own(cls)
    return {name: text for name, text in found.items() if name in model.model_fields}


def _own(model: type[BaseModel]) -> dict[str, str]:
    (tree,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(tree, ast.ClassDef)  # noqa: S101 - models stand at the top of their files
    found = {}
    for field, below in itertools.pairwise(tree.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found
