"""Files that somebody made on purpose, by what is wrong with them."""

import hashlib
import json
import os
import shutil
import struct

FILES = (
    ".lock",
    "config.toml",
    "clients.csv",
    "metrics.jsonl",
    "summary.json",
    "report.html",
    "serving.toml",
)
FOLDERS = ("best", "checkpoints", "figures", "flower", "returns", "tensorboard")
SERVING = """host = "127.0.0.1"
port = 0
keys = ""
local = 1
attached = false
wait = 1.0
federation = "0123456789abcdef0123456789abcdef"
"""
RUN = "fedkl-seed0"
ESCAPE = "\x1b]0;owned\x07"


# What is done to a run: each gets its path, and a folder outside with a file `victim`.


def link(name, to):
    def spoil(run, outside):
        (run / name).parent.mkdir(exist_ok=True)
        remove(run / name)
        (run / name).symlink_to(outside / to)

    return f"{name} is a link to {to}", spoil


def loop(name):
    def spoil(run, outside):
        remove(run / name)
        (run / name).symlink_to(name.rpartition("/")[2])

    return f"{name} is a link to itself", spoil


def pipe(name):
    def spoil(run, outside):
        remove(run / name)
        os.mkfifo(run / name)

    return f"{name} is a pipe", spoil


def folder(name):
    def spoil(run, outside):
        remove(run / name)
        (run / name).mkdir()

    return f"{name} is a folder", spoil


def unfinished(case):
    """Something done to a run that has a round left to train."""

    def spoil(run, outside):
        (run / "summary.json").unlink()
        text = (run / "config.toml").read_text()
        (run / "config.toml").write_text(text.replace("rounds = 2", "rounds = 3", 1))
        case[1](run, outside)

    return f"{case[0]}, unfinished", spoil


def served(case):
    """Something done to a run whose clients are in a network."""

    def spoil(run, outside):
        (run / "serving.toml").write_text(SERVING)
        case[1](run, outside)

    return f"{case[0]}, served", spoil


def contents(name, data, what):
    return f"{name}: {what}", lambda run, outside: (run / name).write_bytes(data)


def config(old, new, what):
    def spoil(run, outside):
        text = (run / "config.toml").read_text()
        assert old in text
        (run / "config.toml").write_text(text.replace(old, new, 1))

    return f"config: {what}", spoil


def records(change, what):
    """All records changed, in a log without checksums: anybody can make those."""

    def spoil(run, outside):
        lines = (run / "metrics.jsonl").read_text().splitlines()
        old = [json.loads(line) for line in lines]
        new = []
        for record in old:
            record.pop("chain")
            new.append(json.dumps(change(record) or record))
        (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in new))
        without_origins(run)

    return f"records: {what}", spoil


def without_origins(run):
    """Checkpoints as they were before they said what they are made with."""
    for path in (run / "checkpoints").iterdir():
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        del header["__metadata__"]
        path.unlink()
        write_checkpoint(run, int(path.name[:6]), header, data[8 + length :])


def write_checkpoint(run, round, header, body, folder="checkpoints"):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = struct.pack("<Q", len(text)) + text + body
    name = f"{round:06d}.{hashlib.sha256(data).hexdigest()}.safetensors"
    (run / folder).mkdir(exist_ok=True)
    (run / folder / name).write_bytes(data)


def checkpoint(header, what, round=3, body=b"\0" * 64):
    """One that is newer than the good ones, with the right checksum in its name."""
    return f"checkpoint: {what}", lambda run, outside: write_checkpoint(run, round, header, body)


def circle(run, outside):
    """A checkpoint of the best round that builds on itself, whatever its name says of it."""
    name = f"000001.{'a' * 64}.safetensors"
    header = json.dumps({"__metadata__": {"builds_on": name}}).encode()
    (run / "best").mkdir(exist_ok=True)
    (run / "best" / name).write_bytes(struct.pack("<Q", len(header)) + header)
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("keep_best = false", "keep_best = true"))


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def newest(spoil):
    """Something done to the newest checkpoint."""

    def changed(run, outside):
        name = max(path.name for path in (run / "checkpoints").iterdir())
        spoil(f"checkpoints/{name}")[1](run, outside)

    return f"the newest checkpoint {spoil('')[0]}", changed


def plugin(run, outside):
    evil = outside / "evil.py"
    evil.write_text(f"open({str(outside / 'ran')!r}, 'w')\n")
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("plugins = []", f"plugins = [{str(evil)!r}]"))


def _cases():
    yield "a plugin that nobody agreed to", plugin
    for name in FILES:
        yield from (link(name, "victim"), link(name, "nowhere"), loop(name), pipe(name))
        yield folder(name)
    for name in FOLDERS:
        yield from (link(name, "folder"), link(name, "nowhere"), link(name, "victim"))
        yield unfinished(link(name, "folder"))
    for name in ("flower", "flower/home", "flower/superlink.log"):
        yield unfinished(served(link(name, "folder")))
    yield unfinished(("best/ has a checkpoint that builds on itself", circle))
    for name in ("figures/learning_curves.svg", "figures/learning_curves.png"):
        yield from (link(name, "victim"), link(name, "nowhere"))
    for kind in (loop, pipe, folder, lambda name: link(name, "nowhere")):
        yield newest(kind)
    yield newest(lambda name: link(name, "victim"))
    nested = 100_000
    texts = {
        "nested arrays": b"x = " + b"[" * nested,
        "nested tables": b"x = " + b"{a = " * nested,
        "a key of 20,000 parts": b".".join([b"a"] * 20_000) + b" = 1",
        "a header of 20,000 parts": b"[" + b".".join([b"a"] * 20_000) + b"]",
        "a quoted key of 20,000 parts": b".".join([b'"a"'] * 20_000) + b" = 1",
        "a key of 20,000 escaped quotes": b".".join([b'"\\""'] * 20_000) + b" = 1",
        "100,000 headers": b"".join(b"[a%d.b.c.d]\n" % n for n in range(100_000)),
        "parts with spaces": b" . ".join([b"a"] * 20_000) + b" = 1",
        "an inline key of many parts": b"x = {" + b".".join([b"a"] * 20_000) + b" = 1}",
        "too long": b"# " + b"x" * 10_000_000,
        "long words": b"a" * 4_000_000,
        "many quotes": b'"' * 4_000_000,
        "no text": bytes(range(256)),
        "empty": b"",
        "an array of tables": b"[[world]]\n[[algorithm]]",
        "a large number": b"seed = " + b"9" * 5000,
    }
    for what, data in texts.items():
        yield contents("config.toml", data, what)
        yield contents("serving.toml", data, what)
        yield contents("metrics.jsonl", data + b"\n{}\n", what)
        yield contents("summary.json", data, what)
    for what, data in {
        "nested": b'{"round": ' + b"[" * nested + b"}\n",
        "nested objects": b'{"a": ' * nested + b"\n",
        "a large number": b'{"round": ' + b"9" * 5000 + b"}\n",
        "not an object": b"[1, 2, 3]\n",
        "zeros": b"\0" * 10_000 + b"\n",
        "one long line": b'{"round": 1, "x": "' + b"y" * 5_000_000 + b'"}\n',
        "not strict": b'{"round": NaN}\n',
    }.items():
        yield contents("metrics.jsonl", data, what)
        yield contents("metrics.jsonl", data + b'{"round": 2}\n', f"{what}, then another")
        yield contents("summary.json", data, what)
    for name in ("world", "algorithm", "federation", "learner", "evaluation"):
        for value in ("3", '"x"', "[1]", "1979-05-27"):
            yield config(f"[{name}]", f"{name} = {value}\n[not_{name}]", f"{name} = {value}")
    yield config("seed = 0", "seed = -1", "a seed below 0")
    yield config("seed = 0", 'seed = "x"', "a seed that is text")
    yield config("rounds = 2", "rounds = 99999999999999999999", "rounds without end")
    yield config("rounds = 2", "rounds = -2", "rounds below 0")
    yield config('"probe-point"', f'"{ESCAPE.encode("unicode_escape").decode()}"', "no letters")
    yield config('name = "fedkl"', 'name = "\\u001b]0;owned\\u0007"', "no letters in a name")
    yield config("plugins = []", "plugins = 3", "plugins that are a number")
    yield config("plugins = []", 'plugins = ["/dev/zero"]', "an endless plugin")
    yield config("plugins = []", 'plugins = ["/nowhere.py"]', "a plugin that is not there")
    for key in (
        "return_mean",
        "rejected",
        "coefficients",
        "evaluated",
        "return_per_client",
        "note",
    ):
        for value in (True, "x", [[]], {"a": {"b": []}}, 10**400, {}, -1):
            yield records(lambda r, k=key, v=value: r.update({k: v}), f"{key} is {str(value)[:9]}")
        yield records(lambda r, k=key: r.pop(k) and None, f"no {key}")
    yield records(lambda r: r.update(return_mean=1e308, return_min=-1e308), "huge returns")
    yield records(lambda r: r.update(return_per_client=[1e308, -1e308, 1e308]), "huge per client")
    yield records(lambda r: r.update(note=ESCAPE), "a note without letters")
    yield records(
        lambda r: r.update(
            rejected=[{"client": 1, "reason": f"</script><script>alert(1){ESCAPE}"}]
        ),
        "a script",
    )
    yield records(lambda r: {}, "empty")
    yield records(lambda r: r.update(returns_file="../../victim"), "a path that leads out")
    one = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    for dtype in ("BF16", "F8_E4M3", "F99", "", 3, None):
        yield checkpoint({"round": one | {"dtype": dtype}}, f"dtype {dtype}")
    for shape in ([2**40], [-1], [2**62, 2**62], [0], ["x"], [1] * 100, 4):
        yield checkpoint({"round": one | {"shape": shape}}, f"shape {str(shape)[:20]}")
    for offsets in ([0, 2**40], [16, 0], [-1, 16], [0], "x"):
        yield checkpoint({"round": one | {"data_offsets": offsets}}, f"offsets {offsets}")
    yield checkpoint(b"[" * nested, "a nested header")
    yield checkpoint(b"", "no header")
    yield checkpoint({"rows": one, "rows.x": one}, "rows that are no numbers")
    yield checkpoint({"round": one}, "a round far away", round=10**14)
    yield checkpoint({"__metadata__": {"builds_on": "../../victim"}, "round": one}, "a path")
    yield checkpoint({"__metadata__": {"config": "["}, "round": one}, "an origin that is none")
    origin = dict.fromkeys(("config", "plugins", "history"), "[]") | {"rounds": "2"}
    origin |= dict.fromkeys(("params", "log"), '""')
    yield checkpoint({"__metadata__": origin, "round": one}, "an origin without a config")
    yield checkpoint({"__metadata__": {"round": "1"}, "round": one}, "another round inside")
    rounds = {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}
    for value in (-5, 2**62, 7):
        body = struct.pack("<q", value)
        yield checkpoint({"round": rounds}, f"round {value} inside", body=body)


def _cases_of_several():
    yield link(RUN, "folder")
    for name in (f"{RUN}/worker.log", ".lock", "compare.toml", "report.html"):
        yield from (link(name, "victim"), link(name, "nowhere"), loop(name), pipe(name))
        yield folder(name)
    yield link("figures", "folder")
    yield contents("compare.toml", b".".join([b"a"] * 20_000) + b" = 1", "a key of 20,000 parts")
    yield contents("compare.toml", b"x = " + b"[" * 100_000, "nested arrays")
    yield contents(f"{RUN}/config.toml", b"seed = ", "no TOML")


CASES = dict(_cases())
OF_COMPARISONS = dict(_cases_of_several())
