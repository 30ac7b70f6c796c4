"""TOML of strangers: read in a moment, or refused."""

import contextlib
import time

import pytest

from fedkl.io import strict_toml


def repeated(line):
    """As many lines as a file may have, each with a number of its own."""
    length = len(line.format(n=10**6)) + 1
    return "".join(f"{line.format(n=n)}\n" for n in range(strict_toml.LARGEST // length))


@pytest.mark.parametrize("part", ["a", '"a"', "'a'", '"\\""', '"\\\\"', '" . "', "'\\'", "é", '""'])
@pytest.mark.parametrize(
    "text",
    [
        "{key} = 1",
        "[{key}]",
        "  [[ {key} ]]",
        "x = 1 # '\n{key} = 1",
        'x = "a\\"b"\n{key} = 1',
        "x = {{ a = '', {key} = 1 }}",
        'x = {{ a = """"b"""", {key} = 1 }}',
        "x = {{ a = '''''b''''', {key} = 1 }}",
        'x = {{ a = """\\""\\\n"#""", {key} = 1 }}',
    ],
)
def test_a_key_of_too_many_parts_is_refused_however_it_is_written(part, text):
    for dot in (".", " . ", "\t."):
        strict_toml.parse(text.format(key=dot.join(["b"] * 8)))
        with pytest.raises(ValueError, match="more than 8 parts"):
            strict_toml.parse(text.format(key=dot.join([part] * 20_000)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('x = "see a.b.c.d.e.f.g.h.i.j"', "see a.b.c.d.e.f.g.h.i.j"),
        ("x = 'see a.b.c.d.e.f.g.h.i.j'", "see a.b.c.d.e.f.g.h.i.j"),
        ('x = """\n"a.b.c.d.e.f.g.h.i.j"\n"""', '"a.b.c.d.e.f.g.h.i.j"\n'),
        ("x = 1 # a.b.c.d.e.f.g.h.i.j", 1),
        ("x = [\n[0.5],\n[0.25]\n]", [[0.5], [0.25]]),
    ],
)
def test_dots_in_texts_and_comments_are_no_keys(text, value):
    assert strict_toml.parse(text) == {"x": value}


@pytest.mark.parametrize(
    "line",
    ["[a{n}]", " [[ a ]]", "[1.{n}] # x", "a{n} = {{}}", "a.b.c{n} = 1", "a{n} = [{{}}, {{}}]"],
)
def test_a_text_of_too_many_tables_is_refused(line):
    with pytest.raises(ValueError, match="more than 10,000 tables"):
        strict_toml.parse(repeated(line))


def test_a_number_for_each_of_100_000_clients_is_read():
    numbers = [n / 7 for n in range(100_000)]
    text = "[world]\ngravity = [\n" + "".join(f"    {x},\n" for x in numbers) + "]\n"
    assert strict_toml.parse(text)["world"]["gravity"] == numbers


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: repeated("{n:x} = 1"),
        lambda: repeated("{n:x}.b = 1"),
        lambda: "[a.a.a.a.a.a.a.a]\n" + repeated("{n:x}.b = 1")[:-20].rpartition("\n")[0],
        lambda: repeated("{n:x} = " + "[" * 200 + "]" * 200),
        lambda: f"x = [{'1,' * (strict_toml.LARGEST // 2 - 10)}]",
        lambda: '"""' + '\n\\"""' * (strict_toml.LARGEST // 5 - 1),
        lambda: '\\"' * (strict_toml.LARGEST // 2),
        lambda: '" ' * (strict_toml.LARGEST // 2),
    ],
    ids=["keys", "dotted", "deep", "nested", "numbers", "no end", "escapes", "quotes"],
)
def test_nothing_takes_longer_than_five_seconds(make):
    text = make()
    start = time.process_time()
    with contextlib.suppress(ValueError):
        strict_toml.parse(text)
    assert time.process_time() - start < 5
