"""Text from files and other people, fit to be shown, to name a folder, or to be typed again."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import math
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Control characters but for line break and tab, and those that turn the direction of what follows.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|[\ud800-\udfff]")
_BRACKETS = re.compile(r"""[][{}()"' ]""")
_PATH = re.compile(r"(?<![\w/])[~.]{0,2}/[^\s'\"`:,;)]+")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._=+-]+")
_LONG = 80
"""Characters of a name beyond which its end is a checksum; file systems take 255 bytes."""


def printable(text: str) -> str:
    """The text with characters that command a terminal or a page written out as what they are.

    Example:
        >>> printable("demo" + chr(27) + "]0;owned" + chr(7))
        'demo\\\\x1b]0;owned\\\\x07'
    """
    return _UNFIT.sub(lambda found: ascii(found[0])[1:-1], text)


def redact_paths(text: str) -> str:
    """Return the text without the paths of this machine, for readers on another."""
    return _PATH.sub("(a path)", text)


def few(items: Sequence[str], most: int = 8) -> str:
    """The first of several things, and how many more there are.

    Example:
        >>> few(["a", "b", "c"]), few(["a", "b", "c"], most=2)
        ('a, b, c', 'a, b and 1 more')
    """
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def counted(number: int, what: str) -> str:
    """So many of something, whose plural ends in s.

    Example:
        >>> counted(1, "run"), counted(2, "run")
        ('1 run', '2 runs')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def with_article(noun: str) -> str:
    """A noun after the article that its first letter asks for.

    Example:
        >>> with_article("world"), with_article("algorithm")
        ('a world', 'an algorithm')
    """
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


def digits(value: float, decimals: int = 2) -> str:
    """A number with as many decimals as help.

    Args:
        value: the number.
        decimals: of a number from 1 to 10; larger ones have fewer, smaller ones as many digits.

    Example:
        >>> digits(-8.1234), digits(-140.26), digits(12345.6), digits(-0.001014), digits(0.0)
        ('-8.12', '-140.3', '12346', '-0.00101', '0')
    """
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    size = math.floor(math.log10(abs(value)))
    if size < -4:
        return f"{value:.{decimals}e}"
    places = decimals - size if size < 0 else max(0, min(decimals, decimals + 1 - size))
    return f"{value:.{places}f}"


def plain(value: Any) -> str:
    """A setting's value as it would be typed.

    Example:
        >>> plain(True), plain([32, 64]), plain("adam"), plain(1e-05), plain({"uniform": [5, 15]})
        ('true', '[32,64]', 'adam', '1e-05', '{uniform=[5,15]}')
    """
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}={_inside(entry)}' for key, entry in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_inside, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def _inside(value: Any) -> str:
    return repr(value).replace(" ", "") if isinstance(value, str) else plain(value)


def short_keys(keys: Iterable[str]) -> dict[str, str]:
    """Shorten settings to the last words of their names, as far as these tell them apart.

    Example:
        >>> short_keys(["learner.d_local", "world.name", "world.clients.gravity"])
        {'learner.d_local': 'd_local', 'world.name': 'world', 'world.clients.gravity': 'gravity'}
    """
    short = {}
    for key in keys:
        group, _, name = key.partition(".")
        short[key] = group if name == "name" else (name or group).removeprefix("clients.")
    texts = [*short.values()]
    return {key: text if texts.count(text) == 1 else key for key, text in short.items()}


def described(settings: Mapping[str, Any]) -> list[str]:
    """Write settings in a few letters each.

    Example:
        >>> described({"learner.d_local": 0.02, "world.name": "pendulum"})
        ['d_local=0.02', 'world=pendulum']
    """
    short = short_keys(settings)
    return [f"{short[key]}={plain(value)}" for key, value in settings.items()]


def folder_name(*parts: str) -> str:
    """A name that every file system takes and no shell minds; long ones end in a checksum.

    Different values may come to the same name, such as [[1,2],[3]] and [1,2,3].

    Example:
        >>> folder_name("fedkl", "hidden=[32,32]", "gravity={uniform=[5,15]}")
        'fedkl-hidden=32-32-gravity=uniform-5-15'
        >>> folder_name("fedkl", "hidden=[]")
        'fedkl-hidden=empty'
    """
    bare = [_BRACKETS.sub("", _without_equals(part)) for part in parts]
    pieces = [_NOT_IN_A_NAME.sub("-", part).strip("-.") for part in bare]
    pieces = [f"{piece}empty" if piece.endswith("=") else piece for piece in pieces]
    name = "-".join(piece for piece in pieces if piece)
    if len(name) <= _LONG:
        return name
    return f"{name[: _LONG - 9].rstrip('-.=')}-{short_digest(name)}"


def short_digest(text: str) -> str:
    """Return a few letters that tell a text from others."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _without_equals(part: str) -> str:
    """Return a part with colons in place of the equals signs of a table that is its value."""
    head, brace, table = part.partition("{")
    return f"{head}{brace}{table.replace('=', ':')}"


_ELSEWHERE = {
    "batch": "minibatch",
    "batch_size": "minibatch",
    "gamma": "discount",
    "lam": "gae_lambda",
    "lambda": "gae_lambda",
    "local_epochs": "epochs",
    "lr": "learning_rate",
    "minibatch_size": "minibatch",
    "n_clients": "clients",
    "n_epochs": "epochs",
    "n_rounds": "rounds",
    "n_steps": "steps",
    "net_arch": "hidden",
    "num_clients": "clients",
    "num_rounds": "rounds",
    "optimizer": "optimiser",
}
"""Words that other libraries have for ours."""


def our_word(word: str) -> str:
    """The word that we have for one of another library; any other word as it is.

    Example:
        >>> our_word("lr"), our_word("steps")
        ('learning_rate', 'steps')
    """
    return _ELSEWHERE.get(word, word)


def did_you_mean(word: str, known: Iterable[str], before: str = "") -> str:
    """Ask in brackets for the known word that was meant; empty if none is like it.

    It knows some words of other libraries, and takes capitals for small letters.

    Args:
        word: that is not known.
        known: the words there are.
        before: stands before each of them where it is typed.

    Example:
        >>> did_you_mean("dmo", ["demo", "cartpole"]), did_you_mean("Cart", ["demo", "cartpole"])
        (' (did you mean demo?)', ' (did you mean cartpole?)')
        >>> did_you_mean("lr", ["learning_rate"], before="learner.")
        ' (did you mean learner.learning_rate?)'
    """
    spelled = {one.lower(): one for one in known}
    small = word.lower()
    # The beginning of a word is often less like it than another word is.
    begun = sorted((one for one in spelled if small and one.startswith(small)), key=len)
    named = [one for one in spelled if one == our_word(small)]
    close = named or begun or difflib.get_close_matches(small, spelled, n=1)
    return f" (did you mean {before}{spelled[close[0]]}?)" if close else ""


def utc(seconds: float) -> str:
    """A moment as ISO 8601 has it, of the clock in Greenwich.

    Args:
        seconds: as `time.time` counts them.

    Example:
        >>> utc(1_700_000_000.9)
        '2023-11-14T22:13:20Z'
    """
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def one_line(error: BaseException) -> str:
    """Write an error in one line, as it ends a traceback.

    Example:
        >>> one_line(ValueError("a\\nb"))
        'ValueError: a b'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")


def print_warning(message: str) -> None:
    """Print a warning on stderr, in the name of the program; nothing, where that is not possible.

    For what no caller can be told of: a hook of Python's or JAX's, in which nothing may raise.
    """
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"fedkl: warning: {printable(message)}", file=sys.stderr, flush=True)
