"""Writes the page of the API from signatures and docstrings, so that it is complete wherever Markdown is shown.

python docs/api.py               # rewrite the page; a test fails while it is not up to date
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pydoc import locate
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PAGE = ROOT / "docs" / "reference" / "api.md"
PACKAGES = ("operators", "operators.sources", "operators.sinks", "operators.outputs", "operators.testing")
"""The packages from which users import."""
COLUMNS_MAX = 100
PLACE = re.compile(r"(<!-- ([\w.]+): made by docs/api.py -->\n).*?(<!-- end -->)", re.DOTALL)
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises):$", re.MULTILINE)
_ENTRY = re.compile(r"^(\*{0,2}\w+): ", re.MULTILINE)
FOLDED = {
    each.rpartition(".")[2]: each
    for each in (
        "operators.Stream",
        "operators.Context",
        "operators.Operator",
        "operators.Window",
        "operators.Aggregate",
        "operators.sources.Source",
        "operators.sinks.Sink",
    )
}
"""The classes whose methods are not listed again with their subclasses, with their places on the page."""
_FOREIGN = ("builtins", "typing", "enum", "abc")
"""The modules whose classes are no part of the API."""


def _entries(body: str) -> str:
    """Return the list of a section of a docstring."""
    body = textwrap.dedent(body).strip()
    parts = _ENTRY.split(body)
    if len(parts) == 1:
        return " ".join(body.split()) + "\n"
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return "".join(f"* `{name}`: {' '.join(text.split())}\n" for name, text in pairs)


def description(docstring: str | None) -> str:
    """Return a docstring as Markdown, with lists for its sections."""
    parts = _SECTION.split(inspect.cleandoc(docstring or ""))
    text = f"{parts[0].strip()}\n"
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        text += f"\n{'Arguments' if name == 'Args' else name}:\n\n{_entries(body)}"
    return text


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _parameter(parameter: inspect.Parameter) -> str:
    """Return a parameter as a signature shows it; a default without a literal is `...`."""
    text = str(parameter.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty))
    typed = parameter.annotation is not inspect.Parameter.empty
    if typed:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        default = repr(parameter.default)
        text += f"{' = ' if typed else '='}{'...' if default.startswith('<') else default}"
    return text


def signature(name: str, function: Any, bound: bool) -> str:
    """Return a call with the types of its arguments, in lines of bounded width; a method is shown without `self`."""
    shown = inspect.signature(function)
    parameters = list(shown.parameters.values())[1 if bound else 0 :]
    pieces, starred = [], False
    for each in parameters:
        starred |= each.kind is inspect.Parameter.VAR_POSITIONAL
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            pieces.append("*")
            starred = True
        pieces.append(_parameter(each))
    empty = shown.return_annotation is inspect.Signature.empty or inspect.isclass(function)
    result = "" if empty else f" -> {_annotation(shown.return_annotation)}"
    line = f"{name}({', '.join(pieces)}){result}"
    if len(line) <= COLUMNS_MAX:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in pieces), f"){result}"])


def _attributes(kind: type) -> dict[str, str]:
    """Return the docstrings of the attributes that the body of a class defines."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    texts = {}
    for statement, after in zip(tree.body, tree.body[1:]):
        named: ast.expr | None = statement.target if isinstance(statement, ast.AnnAssign) else None
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            named = statement.targets[0]
        text = after.value if isinstance(after, ast.Expr) else None
        if isinstance(named, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            typed = f": {ast.unparse(statement.annotation)}" if isinstance(statement, ast.AnnAssign) else ""
            texts[named.id] = f"* `{named.id}{typed}`: {' '.join(text.value.split())}\n"
    return {name: text for name, text in texts.items() if not name.startswith("_")}


def _members(kind: type, known: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, and of its bases, that are not known."""
    seen = set(known)
    for base in kind.__mro__:
        for name, member in vars(base).items() if base.__module__ not in _FOREIGN else ():
            called = inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod))
            if called and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, member


def _method(path: str, name: str, kind: type, member: Any) -> str:
    """Return the section of a method or a property."""
    short = f"{kind.__name__}.{name}"
    text = f'\n<a id="{path}.{name}"></a>\n\n#### `{short}`\n\n'
    if isinstance(member, property):
        return text + description(member.__doc__)
    bound = inspect.isfunction(member)
    return f"{text}```python\n{signature(short, getattr(kind, name), bound)}\n```\n\n{description(member.__doc__)}"


def section(path: str) -> str:
    """Return the section of a class or a function, which begins with its name, its signature and its docstring."""
    documented: Any = locate(path)
    name = path.rpartition(".")[2]
    package = next(each for each in PACKAGES if getattr(import_module(each), name, None) is documented)
    text = f'<a id="{path}"></a>\n\n### `{name}`\n\n`from {package} import {name}`\n\n'
    if not inspect.isclass(documented):
        return f"{text}```python\n{signature(name, documented, bound=False)}\n```\n\n{description(documented.__doc__)}"
    own = documented.__init__ is not object.__init__ and "Enum" not in type(documented).__name__
    if own and not getattr(documented, "_is_protocol", False):
        text += f"```python\n{signature(name, documented, bound=False)}\n```\n\n"
    text += description(documented.__doc__)
    base = next((each for each in documented.__mro__[1:] if each.__name__ in FOLDED), None)
    if base is not None:
        text += f"\nIt has all methods of [`{base.__name__}`](#{FOLDED[base.__name__]}).\n"
    known = frozenset(dir(base)) if base is not None else frozenset()
    attributes = "".join(_attributes(documented).values())
    text += f"\n{attributes}" if attributes else ""
    return text + "".join(_method(path, name, documented, each) for name, each in _members(documented, known))


def filled(page: str) -> str:
    """Return the page with the present signatures and docstrings in their places."""
    return PLACE.sub(lambda place: place[1] + section(place[2]) + place[3], page)


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
