"""The generated parts of docs/commands.md and docs/settings.md: what the commands say of themselves with `--help`, and
what settings say of themselves in their docstrings. A test compares them with the pages.

    python -m tenure.cli.reference docs      # writes them again, below the line that says so in each page
"""

import ast
import dataclasses
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import cyclopts

__all__ = ["PAGES", "generated", "main", "render_commands", "render_settings"]

BEGINS = "<!-- What follows is generated: python -m tenure.cli.reference docs -->"
USUAL = "topics"
"""A command that has the usual options, and no others."""
BY_HAND = ("--install-completion", "simulate", "bench")
"""The page itself tells of these: two read their own arguments."""
SAID_SHORTER = (" *[default: False]*", ' *[default: ""]*')
SETTINGS = (
    ("tenure.scheduler.settings", "NodeSettings"),
    ("tenure.scheduler.settings", "ClientSettings"),
    ("tenure.members.settings", "MemberSettings"),
)


# -- commands -------------------------------------------------------------------------------------


def render_commands() -> str:
    """A section for each group, with its commands and their options."""
    from tenure.cli.app import COMMANDS, build_app

    app = build_app()
    sections = dict(_sections(app.generate_docs(output_format="markdown", heading_level=2, flatten_commands=True)))
    usual = _items(sections[USUAL])
    lines = ["## Usual options", "", "Those of all commands that talk to a cluster:", "", *map(_shorter, usual), ""]
    title = None
    for name, _, group, _ in COMMANDS:
        commands = [command for command in sections if command.split()[0] == name]
        if commands and group.name != title:
            title = group.name
            lines += [f"## {title}", ""]
        for command in commands:
            sub = app
            for part in command.split():
                sub = sub[part]
            lines += [f"### tenure {command}", "", *_head(command, sub), *_bullets(sections[command], usual), ""]
    return "\n".join(lines).rstrip() + "\n"


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Each command with what the generator says of it, in the order of the generator."""
    for part in text.split("\n## tenure ")[1:]:
        command, _, section = part.partition("\n")
        if command not in BY_HAND:
            yield command, section.strip()


def _items(section: str) -> list[str]:
    """Commands, arguments and options: a line each, however many the generator makes of one."""
    items: list[str] = []
    is_open = False
    for line in section.splitlines():
        if line.startswith("* "):
            items.append(line)
            is_open = True
        elif is_open and line and not line.startswith("**"):
            items[-1] = f"{items[-1]} {line.strip()}"
        else:
            is_open = False
    return items


def _head(command: str, sub: "cyclopts.App") -> list[str]:
    """How it is called, and what its docstring promises."""
    usage, text = [f"tenure {command}"], sub.help
    if sub.default_command is not None:
        for argument in sub.assemble_argument_collection():
            if argument.field_info.is_positional:
                name = argument.name + "..." * (argument.field_info.kind is inspect.Parameter.VAR_POSITIONAL)
                usage.append(name if argument.required else f"[{name}]")
        text = (inspect.getdoc(sub.default_command) or "").partition("\nParameters\n")[0]
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    return ["```text", " ".join(usage), "```", "", *[line for paragraph in paragraphs for line in (paragraph, "")]]


def _bullets(section: str, usual: list[str]) -> list[str]:
    """Commands, arguments and options; the usual ones are no more than mentioned."""
    own = _items(section)
    mentioned = [line for line in own if line in usual]
    lines = [_shorter(line) for line in own if line not in mentioned]
    if mentioned:
        names = ", ".join("`" + line.split("`")[1].split()[0].rstrip(",") + "`" for line in mentioned)
        which = "The [usual options](#usual-options)" if mentioned == usual else f"The [usual](#usual-options) {names}"
        lines.append(f"* {which}.")
    return lines


def _shorter(line: str) -> str:
    for words in SAID_SHORTER:
        line = line.removesuffix(words)
    return line.replace(" **[required]**", "").replace(" *[default: ", " *[").replace(" *[env: ", " *[")


# -- settings -------------------------------------------------------------------------------------


def render_settings() -> str:
    """A table for each class of settings."""
    lines: list[str] = []
    for module_name, class_name in SETTINGS:
        module = importlib.import_module(module_name)
        described = _described(Path(str(module.__file__)).read_text(), class_name)
        lines += [f"## {class_name}", "", described.pop(""), "", "| setting | default | |", "|---|---|---|"]
        lines += [
            f"| `{name}` | {_shown(name, default)} | {described[name]} |"
            for name, default in _defaults(getattr(module, class_name))
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _defaults(settings: Any) -> Iterator[tuple[str, Any]]:
    made = settings()
    names = [field.name for field in dataclasses.fields(settings)] if dataclasses.is_dataclass(settings) else ()
    for name in names or settings.__struct_fields__:
        yield name, getattr(made, name)


def _described(source: str, class_name: str) -> dict[str, str]:
    """What the docstrings say: of the class (under the empty name), and below each field. A field has one, or it is
    that of the field above it."""
    [found] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == class_name]
    described = {"": _line(ast.get_docstring(found) or "")}
    for node, below in zip(found.body, [*found.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            described[node.target.id] = _line(str(below.value.value)) if is_text else ""  # type: ignore[union-attr]
    return described


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _shown(name: str, value: Any) -> str:
    """A default for people."""
    if value is None or value in ((), {}, ""):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if "_bytes_" in name:
        return f"{value // 2**20} MiB" if value % 2**20 == 0 else f"{value // 2**10} KiB"
    return f"{value:,g}" if isinstance(value, int | float) else str(value)


# -- pages ----------------------------------------------------------------------------------------

PAGES = {"commands.md": render_commands, "settings.md": render_settings}


def generated(page: str) -> str:
    """The part of a page's text that is generated."""
    return page.partition(BEGINS)[2].lstrip("\n")


def main(arguments: list[str]) -> int:
    """Write the pages in a folder again."""
    folder = Path(arguments[0])
    for name, render in PAGES.items():
        page = folder / name
        by_hand = page.read_text().partition(BEGINS)[0]
        page.write_text(f"{by_hand}{BEGINS}\n\n{render()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
