"""The commands that README, docs and notebooks show work: each is parsed, and its presets and
settings are made a config; the quick ones are run."""

import itertools
import json
import re
import shlex
from pathlib import Path

import pytest
from commands import call

from fedkl.cli import common, precheck
from fedkl.cli.parser import parser
from fedkl.config import config
from fedkl.experiments.grid import parse_values

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("docs/notebooks/*.ipynb")),
    *sorted(ROOT.glob("examples/**/*.md")),
    ROOT / "benchmarks/README.md",
]
QUICK = ("list", "show")
_BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```$|((?:^ {4}.*\n)+)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(fedkl [^`\n]+)`")
_PLACEHOLDER = re.compile(r"\.\.\.|(?<![\w./:=])[A-Z]+(\.\w+)?(?![\w-])")
"""What stands for something else: `fedkl resume RUN`."""
_SHELL = {"|", "&&", "||", ";", ">", "<", "&"}


def text_of(page):
    """What a page says; of a notebook its cells, as code where they are."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n".join(said if kind == "markdown" else f"```\n{said}\n```" for kind, said in cells)


def commands_of(text):
    """The command lines that a text shows, in code and within sentences."""
    for fenced, indented in _BLOCK.findall(text):
        for line in (fenced or indented).replace("\\\n", " ").splitlines():
            if re.match(r" *fedkl [a-z]", line) and not _PLACEHOLDER.search(line):
                lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
                lexer.whitespace_split = True
                words = itertools.takewhile(lambda word: word not in _SHELL, lexer)
                yield shlex.join([*words][1:])
    for line in _INLINE.findall(re.sub(_BLOCK, "", text)):
        words = shlex.split(line)[1:]
        # `fedkl evaluate --video` names an option, and is not meant to be typed.
        if len(words) > 1 and not words[1].startswith("-") and not _PLACEHOLDER.search(line):
            yield shlex.join(words)


SHOWN = {command: page for page in PAGES for command in commands_of(text_of(page))}


def test_there_are_commands_on_the_pages():
    assert len(SHOWN) > 100
    assert {page.name for page in SHOWN.values()} >= {"README.md", "own_algorithm.ipynb"}


@pytest.mark.parametrize("command", SHOWN, ids=lambda command: command[:80])
def test_a_command_that_is_shown_is_understood(command, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)
    options = parser(words).parse_args(words)
    if hasattr(options, "experiment"):
        assert options.experiment in (*precheck.experiments(), precheck.ALL, precheck.REPORT)
    for plugin in getattr(options, "plugin", ()):
        if not plugin.is_file():
            pytest.skip(f"{plugin} is the reader's own")
    if hasattr(options, "preset"):
        require_configs(options)
    if words[0] in QUICK:
        monkeypatch.chdir(tmp_path)
        assert call(capsys, *words)[0] == 0


def require_configs(options):
    """Make the configs of a command, of which nothing is trained."""
    if options.preset.endswith(".toml") and not Path(options.preset).is_file():
        return  # the reader's own
    if options.preset.startswith(("gym:", "pettingzoo:")):
        pytest.importorskip(options.preset.partition(":")[0].replace("gym", "gymnasium", 1))
        if "/" in options.preset:
            return  # an environment of the reader's own
    assignments = [*getattr(options, "vary", ()), *getattr(options, "grid", ())]
    texts = [text for one in assignments for text in ([one] if isinstance(one, str) else one)]
    varied = {key: values[0] for key, values in (parse_values(text, "--vary") for text in texts)}
    options.rounds = getattr(options, "rounds", None)
    settings = common.settings_of(options)
    names = getattr(options, "algorithms", None) or [getattr(options, "algorithm", None)]
    lacking = {name: {*lacks(options, name, varied)} for name in names}
    for name, keys in lacking.items():
        keys -= set.intersection(*lacking.values())  # what none of them has is no setting
        own = {key: value for key, value in varied.items() if key not in keys}
        seed = getattr(options, "seed", None)
        config.preset(options.preset, name, seed, settings | own, options.plugin)


def lacks(options, name, varied):
    """Settings that an algorithm does not have, of those that are compared."""
    return [] if name is None else config.lacks(options.preset, name, varied, options.plugin)
