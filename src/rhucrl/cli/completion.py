"""Completion in bash, zsh and fish: scripts that hold commands and options as data, so that TAB takes no time."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from tyro.conf import Positional, Suppress

from rhucrl.cli.envs import AGAINST
from rhucrl.cli.fields import field_texts
from rhucrl.envs import NAMES

KNOWN = {"ENV": NAMES, "--env": NAMES, "--against": AGAINST}  # words for what may be any text


@dataclass(frozen=True)
class Completion:
    """Print the script that makes TAB complete commands, options, their values and files.

    bash: add `source <(rhucrl completion bash)` to ~/.bashrc.

    zsh: add `source <(rhucrl completion zsh)` to ~/.zshrc, after compinit.

    fish: rhucrl completion fish > ~/.config/fish/completions/rhucrl.fish
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], Positional]
    """The shell."""

    def run(self) -> int:
        from rhucrl.cli.main import COMMANDS

        write = {"bash": bash, "zsh": zsh, "fish": fish}[self.shell]
        print("\n".join(write(described(COMMANDS))))
        return 0


class Argument(NamedTuple):
    """An option, or a positional argument, which has no names; what may stand for its value."""

    names: tuple[str, ...]
    help: str
    words: tuple[str, ...] = ()
    files: bool = False
    flag: bool = False


class Command(NamedTuple):
    """A command, or a group of them; `path` are the words that name it."""

    path: tuple[str, ...]
    help: str
    arguments: list[Argument]
    commands: list[Command]

    def positional(self) -> Argument:
        return next((argument for argument in self.arguments if not argument.names), Argument((), ""))

    def options(self) -> list[Argument]:
        return [argument for argument in self.arguments if argument.names]

    def all(self) -> Iterator[Command]:
        yield self
        for command in self.commands:
            yield from command.all()


def described(commands: Mapping[str, type]) -> Command:
    arguments = [Argument(("--help",), "show the help", flag=True), Argument(("--version",), "the version", flag=True)]
    return Command((), "", arguments, [_command((name,), kind) for name, kind in commands.items()])


def _command(path: tuple[str, ...], kind: type) -> Command:
    arguments, commands, texts = [Argument(("--help",), "show the help", flag=True)], [], field_texts(kind)
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        inner = [get_args(part) for part in get_args(_bare(hint)) if get_origin(part) is Annotated]
        if inner:  # a union of commands, each with its name
            commands += [_command((*path, mark.name), its) for its, mark, *_ in inner]
        elif Suppress not in marks:
            text = next((mark.help for mark in marks if getattr(mark, "help", None)), texts.get(field.name, ""))
            arguments.append(_argument(field.name, _bare(hint), marks, text))
    return Command(path, _short(inspect.getdoc(kind) or ""), arguments, commands)


def _argument(name: str, hint: Any, marks: tuple[Any, ...], text: str) -> Argument:
    option, given = f"--{name.replace('_', '-')}", {}
    for mark in marks:
        given |= {key: getattr(mark, key) for key in ("aliases", "metavar") if getattr(mark, key, None)}
    if hint is bool:
        return Argument((option, option.replace("--", "--no-", 1)), _short(text), flag=True)
    names = () if Positional in marks else (option, *given.get("aliases", ()))
    leaves = list(_leaves(hint))
    known = KNOWN.get(names[0] if names else given.get("metavar", ""), ())
    words = (*known, *(word for word in leaves if isinstance(word, str)))
    files = any(leaf in (str, Path) for leaf in leaves) and known is not NAMES
    return Argument(names, _short(text), words, files)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _leaves(hint: Any) -> Iterator[Any]:
    """The types, and the words of literals, that a hint consists of."""
    if get_origin(hint) is None:
        yield hint
    elif get_origin(hint) is Literal:
        yield from get_args(hint)
    else:
        for part in get_args(hint):
            yield from _leaves(part)


def _short(text: str) -> str:
    first = re.split(r"[.;:] |\.?\n\n|\.$", " ".join(text.split("\n\n")[0].split()))[0]
    return textwrap.shorten(first, 72, placeholder=" ...")


def bash(root: Command) -> Iterator[str]:
    def at(*words: str) -> str:
        return "'" + "".join(f" {word}" for word in words) + "'"

    def values(argument: Argument, *more: str) -> str:
        return f"words='{' '.join((*more, *argument.words))}' files={'1' * argument.files}"

    commands = [*root.all()]
    steps = "|".join(at(*command.path) for command in commands[1:])
    yield f"""# rhucrl's completion for bash: source <(rhucrl completion bash)
_rhucrl() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} at= word words= options= files=
    [[ $cur == = ]] && cur=
    [[ $prev == = ]] && prev=${{COMP_WORDS[COMP_CWORD-2]}}
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$at $word" in {steps}) at="$at $word" ;; esac
    done
    case "$at $prev" in"""
    for command in commands:
        for option in command.options():
            if not option.flag:
                yield f"        {'|'.join(at(*command.path, name) for name in option.names)}) {values(option)} ;;"
    yield '        *) case "$at" in'
    for command in commands:
        options = " ".join(name for option in command.options() for name in option.names)
        first = values(command.positional(), *(inner.path[-1] for inner in command.commands))
        yield f"            {at(*command.path)}) {first} options='{options}' ;;"
    yield """        esac
        [[ $cur == -* ]] && words=$options files= ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    [[ $files ]] || return 0
    compopt -o filenames 2>/dev/null
    while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$cur")
}
complete -F _rhucrl rhucrl"""


def zsh(root: Command) -> Iterator[str]:
    yield "#compdef rhucrl\n# rhucrl's completion for zsh: source <(rhucrl completion zsh), after compinit"
    for command in root.all():
        yield f"{_function(command.path)}() {{"
        yield '    local curcontext="$curcontext" line state ret=1\n    _arguments -C \\'
        for option in command.options():
            for name in option.names:
                value = "" if option.flag else f":{name.strip('-')}:{_action(option)}"
                yield f"        '{name}{'' if option.flag else '='}[{_quoted(option.help)}]{value}' \\"
        if command.commands:
            rows = " ".join(f'{inner.path[-1]}\\:"{_quoted(inner.help)}"' for inner in command.commands)
            yield f"        '1:command:(({rows}))' '*::argument:->inner' \\"
        elif _action(command.positional()) != " ":
            yield f"        '1:argument:{_action(command.positional())}' \\"
        yield '        && ret=0\n    [[ $state == inner ]] && case "$line[1]" in'
        yield from (f"        {inner.path[-1]}) {_function(inner.path)} && ret=0 ;;" for inner in command.commands)
        yield "    esac\n    return ret\n}"
    yield 'if [[ $funcstack[1] == _rhucrl ]]; then _rhucrl "$@"; else compdef _rhucrl rhucrl; fi'


def _function(path: tuple[str, ...]) -> str:
    return "_".join(("_rhucrl", *path))


def _action(argument: Argument) -> str:
    words = f"({' '.join(argument.words)})"
    if argument.words and argument.files:
        return f' _alternative "words\\:word\\:{words}" "files\\:file\\:_files"'  # the space: as it stands
    return "_files" if argument.files else words if argument.words else " "


def _quoted(text: str) -> str:
    return re.sub(r"([\[\]:\\\"`$])", r"\\\1", text).replace("'", "'\\''")


def fish(root: Command) -> Iterator[str]:
    yield """# rhucrl's completion for fish: rhucrl completion fish > ~/.config/fish/completions/rhucrl.fish
function __rhucrl_in
    set -l words (commandline -opc)
    string match -q -- "$argv *" "$words[2..] "
end
complete -c rhucrl -f"""
    for command in root.all():
        start = " ".join(command.path)
        inside = f"__rhucrl_in {start}" if start else "true"
        here = f"{inside}; and test (count (commandline -opc)) -eq {len(command.path) + 1}"
        for inner in command.commands:
            yield f"complete -c rhucrl -n '{here}' -a {inner.path[-1]} -d {_single(inner.help)}"
        if command.positional().words:
            yield f"complete -c rhucrl -n '{inside}' -a '{' '.join(command.positional().words)}'"
        if command.positional().files:
            yield f"complete -c rhucrl -n '{inside}' -F"
        for option in command.options():
            for name in option.names:
                value = "" if option.flag else " -r -F" if option.files else " -x"
                words = f" -a '{' '.join(option.words)}'" if option.words else ""
                condition = inside if start else here
                yield f"complete -c rhucrl -n '{condition}' -l {name[2:]}{value}{words} -d {_single(option.help)}"


def _single(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
