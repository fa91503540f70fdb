"""The rules of words: what a name says, how a docstring begins, how wide Markdown is, with a count that may only fall.

`python -m tests.architecture.words` prints every place, `--write` lowers the counts in `words.json` to what is there.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.architecture.source import ROOT

COUNTS = Path(__file__).with_suffix(".json")
OWN = (Path(__file__).resolve(), Path(__file__).resolve().with_name("test_words.py"))
"""The rules name the words, and their tests break them."""
PYTHON = ("causal", "operators", "standby", "deploy", "pyspark_causal", "examples", "benchmarks", "tests", "docs")
MARKDOWN_COLUMNS_MAX = 120

PARTICIPLES = frozenset("told found made held given".split())
"""They say that something happened to a value, never what the value is."""

NO_NAMES = PARTICIPLES | {"word"}
"""Names that no variable has; a class or a constant may be a word."""

NO_BEGINNINGS = frozenset(
    "of in on for with without under behind by from as because so that which who whom whose since after before until "
    "while at also not only to what how when where why".split()
)
"""First words of a docstring that is a fragment of a sentence."""

NO_WORDS = re.compile(
    r"\b(tells?|told|telling|mends?|mended|mending|nobody|somebody|whoever|anew|in good order|goes on|went on|go on"
    r"|is away|are away|was away)\b",
    re.IGNORECASE,
)
"""Where a component reports, is fixed, resumes or is unavailable."""

NOT_NATIVE = re.compile(
    r"\b(at once|for ever|of before"
    r"|what is (there|here|kept|held|due|stored|left|needed|sent|asked|wanted|written|read)"
    r"|what (it|they|one) (gives?|has|have|takes?|says?|holds?|needs?|wants?|knows?)"
    r"|beside (it|them|the|a|an|one|its|their|other|others|each|ours|this|that))\b",
    re.IGNORECASE,
)
"""Phrases that are grammatical and that no native engineer writes: *immediately* or *at the same time*, *forever*,
*earlier*; the noun instead of "what is there"; *next to*, or *in addition to*.  Where a count is not zero it falls."""

STILTED = re.compile(
    r"\b(as ever|again and again|for good|one behind the other|by itself"
    r"|behind (the last|the end|the next|a barrier|a change|a batch|a response|a resume|a load|each|those)"
    r"|(position|place|digest|row|frame|watermark|record|snapshot|parts?) behind (it|them|all|each|that)"
    r"|(for|than|after|in|over|of|until|by|at most|up to) so (many|much|long)"
    r"|says (so|which|why|how|whether|who|otherwise)"
    r"|(?<!there )(is|are) no (number|file|journal|manifest|object|schema|reader|function|operator|address|path|record)"
    r")\b"
    r"(?! (as|as that|of numbers)\b)",
    re.IGNORECASE,
)
"""Words that are used for everything: *after* in time and order; *reports*, *names*; *automatically*, *separately*;
*usual*, *repeatedly*, *permanently*; *this many*; *is not a*."""

AFTER = re.compile(r"\b(behind|beside)\b", re.IGNORECASE)
"""*After*, *next to*, *compared with*, *in addition to*, unless it is a lag or something that is left in its place."""
LAGS = re.compile(
    r"\b(leav(e|es|ing)|left)( [\w`.-]+){0,4} behind"
    r"|\b(be|is|are|was|were|far|further|furthest|falls?|falling|elements?|\w*seconds|never|distance of [\w' ]+)"
    r" behind(?! (a|one|each|every) )"
    r"|\bbehind[\"']? (stream time|the watermark|its task|the supervisor)"
    r"|else 'behind'|beside[ -](us|bytewax)",
    re.IGNORECASE,
)
"""Uses of *behind* for a lag or for what is left; and titles of pages to which others link."""

NO_OPENINGS = frozenset("has have let lets say says note notes give gives come comes".split())
"""First words of a function's docstring that do not say what it does: *make*, *allow*, *report*, *record*, *return*."""

STORED = {("snapshot_parts.py", "told")}
"""Keys of stored snapshots, by the file that names them: they cannot change."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CODE = re.compile(r"`[^`]*`")
_FENCE = re.compile(r"^\s*(```|~~~)")
Place = tuple[Path, int, str]


def _bindings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of everything that gets a name, apart from tests and from members of enumerations.

    The name of a test is a sentence, and the state of a thing may be a participle.
    """
    members = {
        each
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith(("Enum", "Flag")) for base in node.bases)
        for statement in node.body
        for each in ast.walk(statement)
        if isinstance(each, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store) and node not in members:
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if not node.name.startswith("test_"):
                yield node.lineno, node.name
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name is not None:
            yield node.lineno, node.name
        elif isinstance(node, ast.MatchMapping) and node.rest is not None:
            yield node.lineno, node.rest
        elif isinstance(node, ast.alias) and node.asname is not None:
            yield node.lineno, node.asname


def names(path: Path, tree: ast.Module) -> Iterator[Place]:
    """Yield bindings of a name that says nothing about the value, or has a word of conversation in it."""
    for line, name in _bindings(tree):
        spoken = _HUMP.sub(" ", name).replace("_", " ").strip()
        refused = NO_NAMES if spoken.islower() else PARTICIPLES
        if spoken.lower() in refused or NO_WORDS.search(spoken):
            yield path, line, name


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield docstrings, those of attributes as well."""
    for node in ast.walk(tree):
        for each in getattr(node, "body", None) or [] if not isinstance(node, (ast.Lambda, ast.IfExp)) else []:
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                yield each.lineno, each.value.value


def fragments(path: Path, tree: ast.Module) -> Iterator[Place]:
    """Yield docstrings whose first sentence is a fragment."""
    for line, text in _texts(tree):
        words = text.split(maxsplit=8)
        if words and words[0].strip(",.:;").lower() in NO_BEGINNINGS:
            yield path, line, " ".join(words[:8])


def prose(path: Path, tree: ast.Module) -> Iterator[Place]:
    """Yield strings and comments in words of conversation."""
    for _, number, text in matches(NO_WORDS, path):
        phrase = text.partition(":")[0]
        if (phrase.islower() or phrase.istitle()) and (path.name, phrase) not in STORED:
            yield path, number, text


def matches(pattern: re.Pattern[str], path: Path) -> Iterator[Place]:
    """Yield each match in a file with its line."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for match in pattern.finditer(line):
            yield path, number, f"{match[0]}: {line.strip()[:80]}"


def after(path: Path, tree: ast.Module) -> Iterator[Place]:
    """Yield *behind* and *beside* in comments and texts where they do not mean a place or a lag."""
    with path.open("rb") as source:
        tokens = [
            each for each in tokenize.tokenize(source.readline) if each.type in (tokenize.COMMENT, tokenize.STRING)
        ]
    for token in tokens:
        for number, line in enumerate(token.string.splitlines(), token.start[0]):
            yield from _after(path, number, line)


def _after(path: Path, number: int, line: str) -> Iterator[Place]:
    """Yield the uses in a line of prose; names in code, and as keys and arguments, are none."""
    prose = LAGS.sub("", _CODE.sub("`", line))
    for match in AFTER.finditer(prose):
        before, rest = prose[: match.start()], prose[match.end() :]
        named = before.strip(" \"'") == "" and rest[:1] in ("", ":", '"', "'")
        if not named and not re.match(r"[\w}=(!.]", rest[:1]) and before[-1:] not in ("{", ".", "_"):
            yield path, number, f"{match[0]}: {line.strip()[:80]}"


def openings(path: Path, tree: ast.Module) -> Iterator[Place]:
    """Yield docstrings of functions that open with a verb that says nothing."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (text := ast.get_docstring(node)):
            if text.split(maxsplit=1)[0].lower() in NO_OPENINGS and not text.startswith("Give up "):
                yield path, node.lineno, text.splitlines()[0][:80]


def wide(path: Path) -> Iterator[Place]:
    """Yield lines of Markdown over the limit that can be broken: tables, code and what a program writes cannot."""
    fenced = generated = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fenced ^= bool(_FENCE.match(line))
        if line.startswith("<!--"):
            generated = not line.startswith(("<!-- end", "<!-- table:"))
        breakable = not fenced and not generated and not line.lstrip().startswith("|") and not line.startswith("    ")
        pieces = _CODE.sub("`", line).split()
        if breakable and len(line) > MARKDOWN_COLUMNS_MAX and len(pieces) > 2:
            yield path, number, f"{len(line)} columns"


OF_PYTHON: dict[str, Callable[[Path, ast.Module], Iterator[Place]]] = {
    "names": names,
    "fragments": fragments,
    "prose": prose,
    "not native": lambda path, tree: matches(NOT_NATIVE, path),
    "stilted": lambda path, tree: matches(STILTED, path),
    "openings": openings,
    "after": after,
}


def _unfenced(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of Markdown that are not in a block of code."""
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fenced ^= bool(_FENCE.match(line))
        if not fenced:
            yield number, line


def markdown_prose(path: Path) -> Iterator[Place]:
    """Yield the same words of conversation in Markdown."""
    for number, line in _unfenced(path):
        yield from ((path, number, match[0]) for match in NO_WORDS.finditer(line))


def markdown_after(path: Path) -> Iterator[Place]:
    """Yield *behind* and *beside* in Markdown where they do not mean a place or a lag."""
    for number, line in _unfenced(path):
        yield from _after(path, number, line)


OF_MARKDOWN: dict[str, Callable[[Path], Iterator[Place]]] = {
    "wide": wide,
    "markdown": markdown_prose,
    "markdown not native": partial(matches, NOT_NATIVE),
    "markdown after": markdown_after,
}


def places() -> Iterator[tuple[str, Place]]:
    """Yield every place that breaks a rule, with `rule package` in front."""
    for package in PYTHON:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path in OWN:
                continue
            tree = ast.parse(path.read_text())
            for rule, check in OF_PYTHON.items():
                for place in check(path, tree):
                    yield f"{rule} {package}", place
    for path in sorted(each for each in ROOT.rglob("*.md") if not any(p.startswith(".") for p in each.parts[1:])):
        for rule, look in OF_MARKDOWN.items():
            for place in look(path):
                yield rule, place


def allowed() -> dict[str, int]:
    """Return the counts as they were last written."""
    counts: dict[str, int] = json.loads(COUNTS.read_text())
    return counts


def main(argv: list[str]) -> int:
    """Print every place, of the rules or packages that are named, or lower the counts."""
    every = list(places())
    counts = Counter(rule for rule, _ in every)
    if argv == ["--write"]:
        before = allowed() if COUNTS.exists() else {}
        higher = [rule for rule, count in counts.items() if count > before.get(rule, 0)]
        if higher:
            print(f"counts may only fall: {', '.join(higher)}", file=sys.stderr)
            return 1
        COUNTS.write_text(json.dumps(dict(sorted(counts.items())), indent=1) + "\n")
        return 0
    for rule, (path, line, text) in every:
        if not argv or all(word in f"{rule} {path}" for word in argv):
            print(f"{path.relative_to(ROOT)}:{line}: {rule.split()[0]}: {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
