"""The house rules that a tree of syntax can show.  Each takes a module and gives lines that break it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tests.architecture.source import SHELL, Module, within

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
INTERFACES = frozenset(("operators.builder.pipeline",))
"""Modules of classes that name one another in their types, which no two files can share without a circle (design 0035).

Their docstrings and overloads do not count, and their functions only declare.
"""
DECLARING_LINES_MAX = 12

WORLD = frozenset(
    "zmq asyncio threading multiprocessing concurrent socket selectors signal time datetime random secrets uuid os "
    "subprocess sqlite3 tempfile shutil".split()
)
ALLOWED = frozenset(
    [
        ("causal.records.values", "datetime"),  # as a type that is carried, never as a clock
        ("operators.kinds.tables.sameness", "datetime"),
        ("operators.sinks.contract.account", "datetime"),
    ]
)
TOUCHING = frozenset(("open", "print", "input", "exec", "eval"))
VARYING = frozenset(("hash", "id"))
_ORDERED_BY = frozenset(("list", "tuple", "enumerate", "iter", "next", "zip", "map", "filter", "reversed"))

_CONVERTING = frozenset(("operators.records.seconds", "operators.sources.generated"))
_PER_SECOND = frozenset((1e6, 1e9))

Break = tuple[int, str]
Rule = Callable[[Module], Iterator[Break]]
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _called(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def pure_imports(module: Module) -> Iterator[Break]:
    """Pure modules import nothing that reaches the world, and the core does not import its shell."""
    for line, name in module.imports():
        top = name.split(".")[0]
        if module.pure and top in WORLD and (module.name, top) not in ALLOWED:
            yield line, f"a pure module imports {top}"
        if module.in_core and within(name, SHELL):
            yield line, "the core imports what acts"


def pure_calls(module: Module) -> Iterator[Break]:
    """Pure modules open, print and run nothing, and use no value that differs from process to process.

    A hash that is thrown away only shows whether there is one.
    """
    unused = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(module.tree):
        if module.pure and _called(node) in TOUCHING | (VARYING if id(node) not in unused else frozenset()):
            yield node.lineno, f"a pure module calls {_called(node)}()"  # type: ignore[attr-defined]


def _is_set(node: ast.AST | None, known: frozenset[str]) -> bool:
    if isinstance(node, (ast.Set, ast.SetComp)) or _called(node or ast.Pass()) in ("set", "frozenset"):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)):
        return _is_set(node.left, known) or _is_set(node.right, known)
    return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in known


def _sets_of(tree: ast.AST) -> frozenset[str]:
    """Names and attributes that are annotated as sets, or only ever assigned sets."""
    kinds: dict[str, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.AnnAssign, ast.arg)) and node.annotation is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else ast.Name(node.arg)
            kind = ast.unparse(node.annotation).split("[")[0]
            kinds[ast.unparse(target)] = kind in ("set", "frozenset", "Set", "AbstractSet")
        elif isinstance(node, ast.Assign):
            for place in node.targets:
                name = ast.unparse(place)
                kinds[name] = kinds.get(name, True) and _is_set(node.value, frozenset())
    return frozenset(name for name, holds in kinds.items() if holds)


def _scopes(module: Module) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """Each function with the sets it can see by name: its own, and attributes of its class."""

    def visit(node: ast.AST, attributes: frozenset[str]) -> Iterator[tuple[ast.AST, frozenset[str]]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                own = frozenset(name for name in _sets_of(child) if name.startswith("self."))
                fields = [n for n in child.body if isinstance(n, ast.AnnAssign)]
                own |= {f"self.{name}" for name in _sets_of(ast.Module(list(fields), []))}
                yield from visit(child, own)
            elif isinstance(child, _Function):
                yield child, attributes | frozenset(n for n in _sets_of(child) if not n.startswith("self."))
            else:
                yield from visit(child, attributes)

    yield from visit(module.tree, frozenset())


def no_set_order(module: Module) -> Iterator[Break]:
    """Nothing pure depends on the order of a set, which differs from process to process."""
    if not module.pure:
        return
    for scope, known in [(module.tree, frozenset[str]()), *_scopes(module)]:
        for node in ast.walk(scope):
            over: list[ast.AST] = []
            if isinstance(node, (ast.For, ast.comprehension)):
                over = [node.iter]
            elif _called(node) in _ORDERED_BY:
                over = list(node.args)  # type: ignore[attr-defined]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                over = list(node.args) if node.func.attr in ("fromkeys", "extend", "join") else []
            for iterated in over:
                if _is_set(iterated, known) and not _order_does_not_matter(scope, node):
                    yield iterated.lineno, "iterates over a set; sort it"  # type: ignore[attr-defined]


def _order_does_not_matter(scope: ast.AST, node: ast.AST) -> bool:
    """A comprehension that makes a set, or is sorted, summed or tested as a whole."""
    if not isinstance(node, ast.comprehension):
        return False
    for outer in ast.walk(scope):
        if isinstance(outer, ast.SetComp) and node in outer.generators:
            return True
        if _called(outer) in ("sorted", "sum", "min", "max", "any", "all", "len", "set", "frozenset"):
            inner = outer.args[0] if outer.args else None  # type: ignore[attr-defined]
            if isinstance(inner, (ast.GeneratorExp, ast.ListComp)) and node in inner.generators:
                return True
    return False


def no_mutable_defaults(module: Module) -> Iterator[Break]:
    """A default argument is made once and shared by all calls."""
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for default in filter(None, [*node.args.defaults, *node.args.kw_defaults]):
                if isinstance(default, (ast.List, ast.Dict, ast.Set)) or _called(default) in (
                    "list", "dict", "set", "bytearray"
                ):  # fmt: skip
                    yield default.lineno, "a mutable default argument"


def errors_are_not_swallowed(module: Module) -> Iterator[Break]:
    """A handler that catches everything raises again, or passes the error on as a value."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = "everything" if node.type is None else ast.unparse(node.type)
        if caught not in ("everything", "Exception", "BaseException"):
            continue
        inside = [inner for statement in node.body for inner in ast.walk(statement)]
        raises = any(isinstance(inner, ast.Raise) for inner in inside)
        handed_on = any(
            isinstance(inner, (ast.Call, ast.Return, ast.Assign)) and not _is_log(inner) and _uses(inner, node.name)
            for inner in inside
        )
        if not raises and not handed_on:
            yield node.lineno, f"catches {caught} and swallows it"


def _is_log(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (
        _called(node) == "print" or ast.unparse(node.func).split(".")[0] in ("log", "logger", "logging", "_log", "LOG")
    )


def _uses(node: ast.AST, name: str | None) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))


def no_asserts(module: Module) -> Iterator[Break]:
    """`python -O` strips `assert`; `invariant()` stays."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assert):
            yield node.lineno, "assert in shipped code; use invariant()"


def nothing_is_unpickled(module: Module) -> Iterator[Break]:
    """Bytes from outside are data, never code."""
    for line, name in module.imports():
        if name.split(".")[0] in ("pickle", "marshal", "shelve", "dill"):
            yield line, f"imports {name.split('.')[0]}"


def _documenting(tree: ast.AST) -> int:
    """Return the number of lines of docstrings and overloads."""
    lines = 0
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, _Function)) and node.end_lineno is not None:
            first = node.body[0]
            if any(ast.unparse(each) == "overload" for each in node.decorator_list):
                lines += node.end_lineno - node.lineno + 2
            elif ast.get_docstring(node) is not None and first.end_lineno is not None:
                lines += first.end_lineno - first.lineno + 1
    return lines


def sizes(module: Module) -> Iterator[Break]:
    """One idea per module, one step per function."""
    interface = module.name in INTERFACES
    lines = len(module.text.splitlines()) - (_documenting(module.tree) if interface else 0)
    if lines > MODULE_LINES_MAX:
        yield 1, f"{lines} lines, at most {MODULE_LINES_MAX}"
    for node in ast.walk(module.tree):
        if isinstance(node, _Function) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield node.lineno, f"function {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"
            code = node.end_lineno - node.body[0].lineno + 1 - _documenting(ast.Module([node], []))
            if interface and code > DECLARING_LINES_MAX:
                yield node.lineno, f"{node.name} of an interface has {code} lines of code; check arguments elsewhere"


def docstrings(module: Module) -> Iterator[Break]:
    """A module says what it promises in its first lines, a public class in its own."""
    if module.tree.body and not isinstance(module.tree.body[0], ast.Expr):
        yield 1, "a module without a docstring"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and ast.get_docstring(node) is None:
            yield node.lineno, f"public class {node.name} has no docstring"


def nothing_is_left_to_do(module: Module) -> Iterator[Break]:
    """No stubs in shipped code."""
    for number, line in enumerate(module.text.splitlines(), 1):
        if any(mark in line for mark in ("TO" + "DO", "FIX" + "ME", "XX" + "X")):
            yield number, "something is left to do"


def _milliseconds(node: ast.AST) -> bool:
    return ast.unparse(node).endswith("_ms")


def one_conversion_of_time(module: Module) -> Iterator[Break]:
    """Operators go between seconds and nanoseconds by `operators.records.seconds`, which rounds once.

    Rates and intervals of generated sources are no times that anybody compares.
    """
    if module.name.split(".")[0] != "operators" or module.name in _CONVERTING:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
            for side, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(side, ast.Constant) and side.value in _PER_SECOND and not _milliseconds(other):
                    yield node.lineno, "a time is converted in place; use seconds_of or ns_of_seconds"


def nothing_is_opened_to_others(module: Module) -> Iterator[Break]:
    """Finds modes in place: files of a job are private, and modes for others come from `causal.storage.modes`."""
    if module.name == "causal.storage.modes":
        return
    lines = module.text.splitlines()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            for value in (*node.args, *(keyword.value for keyword in node.keywords)):
                if not isinstance(value, ast.Constant) or type(value.value) is not int:
                    continue
                written = lines[value.lineno - 1][value.col_offset : value.end_col_offset]
                if written.startswith("0o") and value.value & 0o077:
                    yield value.lineno, f"mode {written} is open to other users"


RULES: tuple[Rule, ...] = (
    pure_imports,
    pure_calls,
    no_set_order,
    no_mutable_defaults,
    errors_are_not_swallowed,
    no_asserts,
    nothing_is_unpickled,
    sizes,
    docstrings,
    nothing_is_left_to_do,
    one_conversion_of_time,
    nothing_is_opened_to_others,
)
