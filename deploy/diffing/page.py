"""The result of `causal diff` as a page for people: one file without scripts or network, in light and dark colours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from deploy.diffing.document import SAME, Document, counted, input_shown, notes_of

EXAMPLES_OPEN = 3
"""The examples of a sink that are shown without a click."""

# The colours are those of the dashboard; no meaning is carried by colour alone.
_STYLE = """
:root { color-scheme: light dark;
  --paper: #fbfbfa; --card: #fff; --ink: #1c2126; --quiet: #5b656e; --line: #dcdfe2; --hover: #eef2f5;
  --accent: #33658f; --good: #21705a; --bad: #b3263b; --same: #c9d3db; --changed: #dd9922; --old: #b3263b;
  --new: #228833; --old-paper: #fbe9eb; --new-paper: #e6f4ea; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14181c; --card: #1c2227; --ink: #e4e8eb; --quiet: #9aa6b0; --line: #343c44; --hover: #262e35;
  --accent: #7fb6e3; --good: #6cc7a8; --bad: #ff8a96; --same: #37424b; --changed: #e0a33a; --old: #ff8a96;
  --new: #6cc07a; --old-paper: #3a2226; --new-paper: #1d3324; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
header { background: var(--card); border-bottom: 1px solid var(--line); padding: 1rem 1.4rem; }
main { padding: .4rem 1.4rem 3rem; max-width: 1100px; margin: 0 auto; }
header > * { max-width: calc(1100px - 2.8rem); margin-left: auto; margin-right: auto; }
h1 { font-size: 1.35rem; margin-top: 0; margin-bottom: .2rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: .95rem; margin: 1.2rem 0 .4rem; }
p { max-width: 80ch; overflow-wrap: anywhere; margin: .4rem 0; }
.quiet { color: var(--quiet); }
.verdict { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem;
  margin: .8rem 0; }
.card > :first-child { margin-top: 0; } .card > :last-child { margin-bottom: 0; }
.figures { display: flex; flex-wrap: wrap; gap: .6rem; margin: .8rem 0; padding: 0; }
.figures > div { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .4rem .8rem; }
.figures dt { color: var(--quiet); font-size: .8rem; }
.figures dd { margin: 0; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.figures dt::before {
  content: ""; display: inline-block; width: .7em; height: .7em; border-radius: 2px; margin-right: .4em;
  background: var(--mark, transparent); }
.figures dt:not([style])::before { display: none; }
.bar { display: flex; height: .7rem; border-radius: 4px; overflow: hidden; background: var(--line); gap: 1px; }
.bar span { min-width: 3px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-size: .8rem; color: var(--quiet); font-weight: 600; }
tr:last-child > td, tr:last-child > th { border-bottom: 0; }
.num { text-align: right; font-variant-numeric: tabular-nums; }
code, td.value, pre { font: 13px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
pre { margin: .2rem 0; white-space: pre-wrap; }
.old { background: var(--old-paper); } .new { background: var(--new-paper); }
.old, .new { border-radius: 4px; padding: .1rem .4rem; }
td.old, td.new { border-radius: 0; padding: .35rem .7rem; }
.old::before { content: "− "; color: var(--old); font-weight: 700; }
.new::before { content: "+ "; color: var(--new); font-weight: 700; }
td:empty::before { content: none; }
details {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px; margin: .5rem 0;
  padding: .4rem .8rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
summary:focus-visible, a:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
a { color: var(--accent); }
.skip {
  position: absolute; left: -99rem; } .skip:focus { left: .5rem; top: .5rem; background: var(--card);
  padding: .4rem; }
ul { padding-left: 1.2rem; }
footer { color: var(--quiet); font-size: .85rem; margin-top: 2.5rem; }
@media (max-width: 640px) {
  header, main { padding-left: .8rem; padding-right: .8rem; }
  th, td { padding: .3rem .4rem; }
}
@media print { details { break-inside: avoid; } }
"""

_KINDS = (
    ("same", "same", "--same"),
    ("changed", "changed", "--changed"),
    ("only_recorded", "only recorded", "--old"),
    ("only_new", "only new", "--new"),
)


def page_of(document: Document) -> str:
    """Return the page."""
    same = document["verdict"] == SAME
    title = f"{document['job']}: {document['verdict']}"
    interval = document["interval"]
    body = "\n".join((*_divergence(document), *_failures(document), *_sinks(document), *_notes(document)))
    verdict = "No row differs." if same else _summary(document)
    epochs = f"epochs {interval['first']:,} to {interval['last']:,}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{_text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<a class="skip" href="#result">Skip to the result</a>
<header>
<h1>{_text(document["job"])} with {_text(document["code"]["file"])}</h1>
<p class="verdict {"good" if same else "bad"}">{"✓" if same else "≠"} {verdict}</p>
<p class="quiet">{document["performed"]:,} recorded records, {_text(interval["from"])} to {_text(interval["to"])},
{epochs}; both versions saw the same order, times, random numbers and answers.</p>
</header>
<main id="result">
{body}
<footer>causal diff, {document["took_s"]:.1f} s. Recorded code {_text(document["code"]["recorded"])}, new code
{_text(document["code"]["new"])}.</footer>
</main>
</body>
</html>
"""


def _summary(document: Document) -> str:
    sinks = document["sinks"].values()
    parts: list[str] = []
    for kind, label, _ in _KINDS[1:]:
        if count := sum(sink[kind] for sink in sinks):
            parts.append(f"{count:,} {'rows ' if not parts else ''}{label}")
    total = sum(sink["same"] for sink in sinks)
    if not parts:
        return f"The versions do not fail alike; {total:,} rows are the same."
    return f"{', '.join(parts)}; {total:,} the same."


def _divergence(document: Document) -> Iterator[str]:
    first = document["first_divergence"]
    if first is None:
        return
    yield '<h2 id="first">Where it begins</h2>\n<div class="card">'
    place = f" at <code>{_text(first['place'])}</code>" if first["place"] else ""
    if not first["operator"]:
        yield "<p>No operator emits anything else; a sink writes the same records otherwise.</p>"
    elif first["added"]:
        yield f"<p>The new operator <strong>{_text(first['operator'])}</strong>{place} changes what follows it.</p>"
    else:
        yield f"<p>Operator <strong>{_text(first['operator'])}</strong>{place} is the first to emit something else.</p>"
    if first["record"]:
        key = f" (key <code>{_text(first['key'])}</code>)" if first["key"] else ""
        yield f"<p>For this record{key}:</p><pre>{_text(first['record'])}</pre>"
    elif first["operator"]:
        yield "<p>When a timer or a window fired, or for several records together.</p>"
    for side, name in (("recorded", "old"), ("new", "new")):
        for text in first[side]:
            yield f'<pre class="{name}">{_text(text)}</pre>'
        if not first[side] and first["operator"]:
            yield f'<pre class="{name} quiet">nothing</pre>'
    yield f'<p class="quiet">{_text(input_shown(first["input"]))}</p></div>'


def _failures(document: Document) -> Iterator[str]:
    for version, problem in document["failures"].items():
        yield (
            f'<div class="card"><p class="bad"><strong>{_text(version.capitalize())} failed</strong></p>'
            f"<pre>{_text(problem)}</pre></div>"
        )


def _sinks(document: Document) -> Iterator[str]:
    for name, sink in document["sinks"].items():
        yield f"<h2>Sink {_text(name)}</h2>"
        figures = "".join(
            f'<div><dt style="--mark: var({colour})">{label}</dt><dd>{sink[kind]:,}</dd></div>'
            for kind, label, colour in _KINDS
        )
        yield f'<dl class="figures">{figures}</dl>'
        total = sum(sink[kind] for kind, _, _ in _KINDS) or 1
        bars = "".join(
            f'<span style="flex: {sink[kind] / total:.6f}; background: var({colour})"></span>'
            for kind, _, colour in _KINDS
            if sink[kind]
        )
        words = ", ".join(f"{sink[kind]:,} {label}" for kind, label, _ in _KINDS)
        yield f'<div class="bar" role="img" aria-label="{words}">{bars}</div>'
        yield from _fields(sink)
        yield from _keys(sink)
        if sink["examples"]:
            yield "<h3>Examples</h3>"
        for place, pair in enumerate(sink["examples"]):
            yield from _example(pair, place < EXAMPLES_OPEN)


def _fields(sink: Mapping[str, Any]) -> Iterator[str]:
    if sink["fields"]:
        rows = [[_cell(each["field"], "value"), _count(each["rows"])] for each in sink["fields"]]
        yield "<h3>Changed fields</h3>"
        yield _table("Fields that differ in changed rows", ("field", "changed rows"), rows)


def _keys(sink: Mapping[str, Any]) -> Iterator[str]:
    if not sink["keys"]:
        return
    more = " or more" if sink["keys_incomplete"] else ""
    rows = [
        [
            _cell(each["key"], "value"),
            _count(each["changed"]),
            _count(each["only_recorded"]),
            _count(each["only_new"]),
        ]
        for each in sink["keys"]
    ]
    yield (
        f"<details><summary>{counted(sink['keys_differing'], more)} (rows are matched by their "
        f"{_text(sink['key'])})</summary>"
    )
    yield _table("Keys with the most differing rows", ("key", "changed", "only recorded", "only new"), rows)
    yield "</details>"


def _example(pair: Mapping[str, Any], shown: bool) -> Iterator[str]:
    old, new = pair["recorded"], pair["new"]
    kind = "changed" if old and new else ("only recorded" if old else "only new")
    key = "" if pair["key"] is None else f" · key <code>{_text(pair['key'])}</code>"
    fields = f" · {_text(', '.join(pair['fields'][:6]))}" if pair["fields"] else ""
    yield f"<details{' open' if shown else ''}><summary>{kind}{key}{fields}</summary>"
    contents = [_content(side) for side in (old, new)]
    if all(isinstance(content, dict) for content in contents):
        yield _side_by_side(contents[0], contents[1], pair["fields"])
    else:
        for side, name in ((old, "old"), (new, "new")):
            if side is not None:
                yield f'<pre class="{name}">{_text(side["row"])}</pre>'
    yield f'<p class="quiet">{_text(input_shown(pair["input"]))}</p></details>'


def _side_by_side(old: Mapping[str, Any], new: Mapping[str, Any], fields: Sequence[str]) -> str:
    rows = []
    roots = {name.partition(".")[0].partition("[")[0] for name in fields}
    for name in (*old, *(name for name in new if name not in old)):
        differs = name in roots
        cells = [
            _cell(
                json.dumps(side[name], ensure_ascii=False) if name in side else "", f"value {mark if differs else ''}"
            )
            for side, mark in ((old, "old"), (new, "new"))
        ]
        rows.append([f'<th scope="row">{_text(name)}</th>', *cells])
    return _table("The row in both versions", ("field", "recorded", "new"), rows)


def _content(side: Mapping[str, Any] | None) -> Any:
    if side is None:
        return None
    try:
        return json.loads(side["row"])
    except ValueError:
        return None


def _notes(document: Document) -> Iterator[str]:
    notes = list(notes_of(document))
    operators = document["operators"]
    if operators["added"]:
        notes.append(f"operators only of the new code: {', '.join(operators['added'])}")
    if operators["removed"]:
        notes.append(f"operators only of the recorded version: {', '.join(operators['removed'])}")
    if notes:
        yield "<h2>Notes</h2>\n<ul>" + "".join(f"<li>{_text(note)}</li>" for note in notes) + "</ul>"


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    numbers = {"changed rows", "changed", "only recorded", "only new"}
    head = "".join(f'<th scope="col"{" class=num" if name in numbers else ""}>{name}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    return (
        f'<div class="scroll"><table aria-label="{caption}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></div>"
    )


def _cell(text: str, kind: str) -> str:
    return f'<td class="{kind.strip()}">{_text(text)}</td>'


def _count(number: int) -> str:
    return f'<td class="num">{number:,}</td>'


def _text(text: str) -> str:
    return escape("".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text))
