"""Mutants: the share of changed lines that the tests notice: `python -m tests.mutants [--seed N] [--count N] [PATH]...`

Changes one line of the product at a time, in a copy of the tree, and runs the tests that perform this line.  A mutant
that no test notices is a line whose meaning nothing checks, or a change that means the same.

Lines are drawn by the hash of their text, so two versions of the tree are asked about the same lines wherever these
are the same: before and after tests were made shorter, run it with one seed.  Tests in other processes do not count.
Needs the package coverage (extra dev).
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData

HOME = Path(__file__).resolve().parents[1]
PRODUCT = ("causal", "operators/kinds")
TESTS = (
    "unit/causal",
    "unit/operators",
    "transcripts",
    "exhaustive",
    "simulation",
    "properties",
    "oracles",
    "guarantees",
)
TESTS_MAX, SECONDS_MAX = 40, 60
"""Bounds of what one mutant may cost: the quickest tests that perform its line, until they take so long together."""
HANGS_AFTER_S = 240
"""Seconds of the processor, not of a clock: a busy machine does not count, and pytest ends tests that only wait."""

_COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change of one line: its file, its number, its text before, and the text of the whole file after it."""

    path: str
    line: int
    before: str
    change: str
    text: str


class Case(NamedTuple):
    """A test function with all its cases: what pytest calls it, and how long it takes."""

    node: str
    seconds: float


def changes(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield each change: the number of the line, the change in words, and the whole source after it."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    raw = source.encode()
    for node in _performed(ast.parse(source)):
        for replacement in _replacements(node):
            first = starts[node.lineno - 1] + node.col_offset
            last = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            new = ast.unparse(replacement) if isinstance(replacement, ast.stmt) else f"({ast.unparse(replacement)})"
            change = f"{' '.join(raw[first:last].decode().split())} -> {new}"
            yield node.lineno, change, (raw[:first] + new.encode() + raw[last:]).decode()


def _performed(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield the nodes that a program performs; annotations, messages of errors and invariants are left out."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.Raise | ast.JoinedStr) or _is_invariant(node):
                continue
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            if isinstance(node, ast.expr | ast.stmt):
                yield node
            yield from _performed(node)


def _is_invariant(node: ast.AST) -> bool:
    """Whether it checks what always holds: no input makes it fail, so no test can notice that it is absent."""
    call = node.value if isinstance(node, ast.Expr) else node
    return isinstance(call, ast.Call) and ast.unparse(call.func).endswith("invariant")


def _replacements(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    """Yield what may stand in the place of a node."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=right):
            yield ast.Compare(left, [_COMPARED[type(operator)]()], right)
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(ast.And() if isinstance(operator, ast.Or) else ast.Or(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=operator, right=operand) if type(operator) in _COMPUTED:
            yield ast.BinOp(left, _COMPUTED[type(operator)](), operand)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)


def drawn(home: Path, paths: Sequence[str], seed: int, count: int) -> list[Mutant]:
    """Return mutants of `count` lines, drawn by the hash of the text of each line and of the change."""
    ranked: list[tuple[str, Mutant]] = []
    for top in paths:
        for file in sorted((home / top).rglob("*.py")) if (home / top).is_dir() else [home / top]:
            path, source = str(file.relative_to(home)), file.read_text()
            lines = source.splitlines()
            same: Counter[tuple[str, str]] = Counter()
            of_line: dict[int, list[tuple[str, Mutant]]] = defaultdict(list)
            for line, change, text in changes(source):
                before = lines[line - 1].strip()
                same[before, change] += 1
                order = hashlib.sha256(repr((seed, path, before, change, same[before, change])).encode()).hexdigest()
                of_line[line].append((order, Mutant(path, line, before, change, text)))
            ranked.extend(min(options) for options in of_line.values())
    return [mutant for _, mutant in sorted(ranked)[:count]]


class Performed:
    """The test functions that perform each line of the product, found out by a run of all of them."""

    def __init__(self, tree: Path, paths: Sequence[str], tests: Sequence[str], jobs: int) -> None:
        """Run all tests once, in `jobs` processes.

        Raises:
            RuntimeError: a test fails before anything is changed.
        """
        self._tree = tree
        files = sorted(
            (
                file
                for test in tests
                for file in ([tree / test] if test.endswith(".py") else (tree / test).rglob("test_*.py"))
            ),
            key=lambda file: -file.stat().st_size,
        )
        self._lines: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._files: dict[str, set[str]] = defaultdict(set)
        self._cases: dict[str, Case] = {}
        (tree / "mutants.coveragerc").write_text(
            "[run]\ndynamic_context = test_function\nsource =\n"
            + "".join(f"    {path}\n" for path in _sources(tree, paths))
        )
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done in [pool.submit(self._trace, part, files[part::jobs]) for part in range(jobs)]:
                done.result()

    def _trace(self, part: int, files: Sequence[Path]) -> None:
        data, report = self._tree / f".coverage.{part}", self._tree / f"report.{part}.xml"
        command = [sys.executable, "-m", "coverage", "run", "--rcfile=mutants.coveragerc", f"--data-file={data}"]
        command += ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        done = _run([*command, *(str(file.relative_to(self._tree)) for file in files)], self._tree, processor_s=3600)
        if done.returncode:
            raise RuntimeError(f"tests fail before anything is changed: {done.stdout[-2000:]}")
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            module, function = case.get("classname", ""), case.get("name", "").partition("[")[0]
            seconds = float(case.get("time", 0)) + self._cases.get(f"{module}.{function}", Case("", 0)).seconds
            self._cases[f"{module}.{function}"] = Case(_node(self._tree, module, function), seconds)
        kept = CoverageData(str(data))
        kept.read()
        for file in kept.measured_files():
            path = os.path.relpath(file, self._tree)
            for line, contexts in kept.contexts_by_lineno(file).items():
                self._lines[path, line].update(contexts)
                self._files[path].update(contexts)

    def of(self, mutant: Mutant) -> list[str]:
        """Return the quickest tests that perform a line; of one that runs at import only, those of its file."""
        contexts = self._lines.get((mutant.path, mutant.line), set())
        if contexts == {""}:
            contexts = self._files[mutant.path]
        chosen, seconds = list[str](), 0.0
        for case in sorted(
            (self._cases[name] for name in contexts if name in self._cases), key=lambda case: case.seconds
        ):
            if len(chosen) == TESTS_MAX or (seconds := seconds + case.seconds) > SECONDS_MAX:
                break
            chosen.append(case.node)
        return chosen


def _sources(tree: Path, paths: Sequence[str]) -> list[str]:
    return [path if (tree / path).is_dir() else str(Path(path).parent) for path in paths]


def _node(tree: Path, module: str, function: str) -> str:
    """Return what pytest calls a function; a class of tests is the last part of what the report calls its module."""
    parts = module.split(".")
    for depth in range(len(parts), 0, -1):
        file = Path(*parts[:depth]).with_suffix(".py")
        if (tree / file).exists():
            return "::".join([str(file), *parts[depth:], function])
    return module


def _run(command: Sequence[str], tree: Path, processor_s: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (processor_s, processor_s))
        output, _ = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, output)


def noticed(mutant: Mutant, tests: Sequence[str], tree: Path) -> bool:
    """Whether one of these tests fails, or hangs, with a mutant in this copy of the tree."""
    file = tree / mutant.path
    original = file.read_text()
    file.write_text(mutant.text)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        return _run(command, tree, HANGS_AFTER_S).returncode != 0
    finally:
        file.write_text(original)


def _copied(home: Path, place: Path) -> Path:
    """Copy the files of a tree that git knows, or all of a directory that is no repository."""
    names = subprocess.run(
        ["git", "ls-files"], cwd=home, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    for name in names or [str(file.relative_to(home)) for file in home.rglob("*") if file.is_file()]:
        if (home / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(home / name, place / name)
    return place


def judge(
    home: Path, paths: Sequence[str], tests: Sequence[str], seed: int, count: int, jobs: int
) -> Mapping[str, Sequence[Mutant]]:
    """Return the mutants that the tests notice, those that they miss, and those whose line no test performs."""
    results: dict[str, list[Mutant]] = {"noticed": [], "missed": [], "not performed": []}
    with tempfile.TemporaryDirectory(prefix="mutants") as place:
        trees = [_copied(home, Path(place, str(job))) for job in range(jobs)]
        performed = Performed(trees[0], paths, tests, jobs)
        mutants = drawn(home, paths, seed, count)

        def of_one_tree(job: int) -> Iterator[tuple[str, Mutant]]:
            for mutant in mutants[job::jobs]:
                chosen = performed.of(mutant)
                yield (
                    ("not performed" if not chosen else "noticed" if noticed(mutant, chosen, trees[job]) else "missed"),
                    mutant,
                )

        def all_of_one_tree(job: int) -> None:
            for result, mutant in of_one_tree(job):
                results[result].append(mutant)
                print(f"{result:>13}  {mutant.path}:{mutant.line}: {mutant.change[:160]}", flush=True)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done in [pool.submit(all_of_one_tree, job) for job in range(jobs)]:
                done.result()
    return results


def main(arguments: Sequence[str]) -> int:
    """Print each mutant with what became of it, and the share that was noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "paths", nargs="*", default=PRODUCT, metavar="PATH", help=f"of the product ({' '.join(PRODUCT)})"
    )
    parser.add_argument("--tests", action="append", metavar="PATH", help="of tests/ (those in this process)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    parser.add_argument("--count", type=int, default=200, help="of lines (200)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at the same time (cores)")
    chosen = parser.parse_args(arguments)
    tests = [f"tests/{test.removeprefix('tests/')}" for test in chosen.tests or TESTS]
    results = judge(HOME, chosen.paths, tests, chosen.seed, chosen.count, chosen.jobs)
    everything = sum(map(len, results.values()))
    print(", ".join(f"{len(mutants)} {result}" for result, mutants in results.items()), f"of {everything} mutants")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
