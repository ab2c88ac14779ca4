"""The reference of the C and C++ interfaces, written from the headers and their comments."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

INCLUDE = Path(__file__).parents[2] / "runtime" / "include"
HEADERS = ("anoco_edge.h", "anoco_backend.h", "anoco_cuda.h")
WRAPPERS = ("anoco_edge.hpp", "anoco_cuda.hpp", "anoco_edge_opencv.hpp")

_SECTION = re.compile(r"/\* ---- (.+) ---- \*/")
_NAMES = (
    re.compile(r"\b(anoco_\w+)\s*\("),  # a function
    re.compile(r"^typedef struct (\w+)"),
    re.compile(r"^typedef .*\b(anoco_\w+);"),
    re.compile(r"^typedef .*\(\*(\w+)\)"),
)
_IDENTIFIER = re.compile(
    r"(?<![`\w/.])((?:anoco|ANOCO)_[\w*]*[\w*]|NULL)(?:\.\.\.)?(?![`\w])(?!\.h)"
)


@dataclass(frozen=True)
class Declaration:
    """A declaration of a header with the comment above it, and the section it stands in."""

    comment: str
    code: str
    section: str

    @property
    def names(self) -> list[str]:
        """The functions and types that are declared, without structs that are only announced."""
        if self.code.startswith("typedef struct") and "{" in self.code:
            return _NAMES[1].findall(self.code)
        found: list[str] = []
        for statement in self.code.split(";"):
            for pattern in (_NAMES[3], _NAMES[0], _NAMES[2]):
                if names := pattern.findall(statement.strip() + ";"):
                    found.append(names[0])
                    break
        return found


def markdown() -> str:
    """Return the C headers, declaration by declaration, and the C++ wrappers."""
    declared = {header: list(declarations((INCLUDE / header).read_text())) for header in HEADERS}
    known = {name for found in declared.values() for each in found for name in each.names}
    lines: list[str] = []
    for header, found in declared.items():
        lines += [f"## {header}", "", *_introduction((INCLUDE / header).read_text(), known)]
        section = ""
        for declaration in found:
            if declaration.section != section:
                section = declaration.section
                lines += [f"**{section}**", ""]
            lines += _entry(declaration, known)
    for wrapper in WRAPPERS:
        lines += [f"## {wrapper}", "", *_wrapper((INCLUDE / wrapper).read_text())]
    return "\n".join(lines)


def declarations(header: str) -> Iterator[Declaration]:
    """Split a header into its declarations; what stands without a blank line between is one.

    >>> found = declarations("/* Sum. */\\nint add(int a,\\n        int b);\\n\\nenum { A };\\n")
    >>> [(each.comment, len(each.code.splitlines())) for each in found]
    [('Sum.', 2), ('', 1)]
    """
    section = ""
    body = header.split('extern "C" {\n#endif\n')[-1].split("#ifdef __cplusplus\n}")[0]
    for block in _blocks(body):
        if named := _SECTION.fullmatch(block.strip()):
            section = named[1]
            continue
        comment, code = _split_comment(block)
        if code:
            yield Declaration(comment, code, section)


def _blocks(body: str) -> Iterator[str]:
    """Yield what stands between blank lines, with blank lines in braces kept."""
    block: list[str] = []
    depth = 0
    for line in body.splitlines():
        if not line.strip() and depth == 0:
            if block:
                yield "\n".join(block)
            block = []
            continue
        block.append(line)
        depth += line.count("{") - line.count("}")
    if block:
        yield "\n".join(block)


def _split_comment(block: str) -> tuple[str, str]:
    if not block.startswith("/*"):
        return "", block
    comment, _, code = block.partition("*/")
    return _plain(comment), code.strip("\n")


def _plain(comment: str) -> str:
    text = comment.removeprefix("/*").replace("*/", "")
    return "\n".join(re.sub(r"^ \*( |$)", "", line).rstrip() for line in text.splitlines()).strip()


def _introduction(header: str, known: set[str]) -> Iterator[str]:
    comment = _plain(header.partition("*/")[0])
    for paragraph in comment.split("\n\n"):
        text = re.sub(r"^\S+\.h - ", "", " ".join(paragraph.split()))
        text = re.sub(r"^([A-Z]\w+)\. ", r"**\1.** ", _sentence(text))
        yield from (_linked(text, known), "")


def _sentence(text: str) -> str:
    """Begin with a capital letter, unless the first word is a name of the library."""
    return text if text.startswith("anoco_") else text[0].upper() + text[1:]


def _entry(declaration: Declaration, known: set[str]) -> Iterator[str]:
    if declaration.code.startswith("#define ANOCO_") and "_INIT" in declaration.code:
        name = declaration.code.split()[1]
        yield from (f"Start from `{name}`: it fills in the size and the defaults.", "")
        return
    names = declaration.names
    if names:
        yield from (f"### {', '.join(names)} {{ #{names[0]} }}", "")
        for name in names[1:]:
            yield from (f'<a id="{name}"></a>', "")
    if declaration.comment:
        yield from (_linked(" ".join(declaration.comment.split()), known), "")
    code = declaration.code.replace("ANOCO_API ", "")
    yield from ("```c", _aligned(code), "```", "")


def _aligned(code: str) -> str:
    """Return code without ANOCO_API, whose continued lines were indented for it."""
    lines = code.split("\n")
    if "(" in lines[0] and not lines[0].startswith(("typedef", "#")):
        indent = lines[0].index("(") + 1
        lines[1:] = [
            " " * indent + line.lstrip() if line.startswith("      ") else line
            for line in lines[1:]
        ]
    return "\n".join(lines)


def _linked(text: str, known: set[str]) -> str:
    def link(found: re.Match[str]) -> str:
        name = found[1]
        return f"[`{name}`](#{name})" if name in known else f"`{found[0]}`"

    return _IDENTIFIER.sub(link, text)


def _wrapper(header: str) -> Iterator[str]:
    """Yield the comment of a C++ header, and what it offers: all of the namespace but details."""
    comment = re.match(r"(//.*\n)+", header)
    assert comment is not None
    lines = [line.removeprefix("//") for line in comment[0].splitlines()]
    text, _, example = "\n".join(lines).strip().partition("\n\n")
    yield from (_sentence(re.sub(r"^\S+\.hpp - ", "", " ".join(text.split()))), "")
    example, _, rest = example.partition("\n\n")
    yield from ("```cpp", textwrap.dedent(example), "```", "")
    if rest:
        yield from (" ".join(rest.split()), "")
    body = re.sub(r"namespace detail \{.*?\n\}  // namespace detail\n", "", header, flags=re.S)
    body = body.partition("namespace anoco {")[2].partition("}  // namespace anoco")[0]
    body = re.sub(r"\n private:\n.*?\n\};", "\n};", body, flags=re.S)
    body = body.replace("\n\n};", "\n};")
    yield from ("```cpp", re.sub(r"\n{3,}", "\n\n", body).strip(), "```", "")
