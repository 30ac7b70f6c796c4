"""What strangers type wrongly: each is answered in a sentence, with code 2; nothing is written."""

import shlex
import shutil
from pathlib import Path

import finished_runs
import pytest
from commands import call

pytestmark = pytest.mark.usefixtures("quick_compilation")

FILES = {
    "notes.txt": "buy milk\n",
    "notes/todo.txt": "buy milk\n",
    "empty/.keep": "",
    "several/compare.toml": 'preset = "demo"\nalgorithms = ["fedkl"]\nseeds = [0]\n',
    "damaged.toml": 'extends = ["demo"\n[learner\n',
    "colon.toml": 'extends = ["demo"]\nlearner: 3\n',
    "group.toml": 'extends = ["demo"]\n[lerner]\nsteps = 3\n',
    "type.toml": 'extends = ["demo"]\n[learner]\nsteps = "many"\n',
    "twice.toml": "seed = 1\nseed = 2\n",
    "latin.toml": b'summary = "\xe9"\n',
    "cycle.toml": 'extends = ["cycle.toml"]\n',
    "base.toml": 'extends = ["demoo"]\n',
    "word.toml": 'extends = "demo"\n',
    "blank.toml": "",
    "gone.toml": 'extends = ["demo"]\nplugins = ["gone.py"]\n',
    "syntax.py": "def f(:\n",
    "silent.py": "x = 1\n",
    "nameless.py": "import fedkl\n\n\n@fedkl.register_algorithm\nclass A(fedkl.Algorithm):\n"
    "    pass\n",
    "taken.py": "import fedkl\n\n\n@fedkl.register_algorithm\nclass A(fedkl.Algorithm):\n"
    '    name = "fedkl"\n    summary = "another"\n',
    "family.npz": "no zip",
}

MISTAKES = """
# presets
train                               | the following arguments are required: PRESET
train demoo                         | there is no preset 'demoo' (did you mean demo?); available:
train Demo                          | (did you mean demo?)
train CartPole-v1                   | (did you mean cartpole?)
train gym                           | (did you mean gymnasium?)
train gymnasium:CartPole-v1         | (did you mean gym:CartPole-v1?)
train gym:CartPol-v1                | did you mean CartPole-v1
train gym:ALE/Pong-v5               | are in the package ale-py
train gym:nosuch:Env-v0             | the module of 'nosuch:Env-v0' cannot be imported
train pettingzoo:nosuch             | world.module: nosuch cannot be imported
train nosuch.toml                   | there is no config file 'nosuch.toml'
train notes.txt                     | notes.txt is a file, and one of settings ends in .toml
train notes                         | notes is a directory, and neither a preset nor a file that
train several                       | several holds several runs: `fedkl resume several` goes on
resume several --rounds 9           | `fedkl compare PRESET --run several --add --rounds 9` makes
describe run                        | heterogeneity, report and check take it as well
show run                            | and run/config.toml in its place has its settings
train run                           | run is the directory of a run: `fedkl resume run` goes on
train damaged.toml                  | damaged.toml is not valid TOML
train colon.toml                    | colon.toml is not valid TOML
train twice.toml                    | twice.toml is not valid TOML
train latin.toml                    | latin.toml cannot be read
train group.toml                    | lerner is not a setting (did you mean learner?)
train type.toml                     | learner.steps must be a whole number, not 'many'
train cycle.toml                    | cycle.toml extends itself
train base.toml                     | there is no preset 'demoo' (did you mean demo?)
train word.toml                     | extends must be a list of strings, not 'demo'
train blank.toml                    | algorithm.name must say which algorithm; available:
train demo cartpole                 | unrecognized arguments: cartpole
# algorithms
train demo --algorithm fedavgg      | (did you mean fedavg?)
train demo --algorithm FedKL        | there is no algorithm 'FedKL' (did you mean fedkl?)
train demo --algorithm ppo          | there is no algorithm 'ppo'; available: fedavg,
train demo --algorithm ''           | there is no algorithm ''
train demo --algorithms fedkl       | (did you mean --algorithm?)
compare demo --algorithms fedkl fedkl --run x     | --algorithms names an algorithm twice
compare demo --algorithms fedkl,fedavg --run x    | with spaces between them, not 'fedkl,fedavg'
compare demo --algorithms fedkl     | the following arguments are required: --run
tune demo --algorithm fedprx --grid algorithm.mu=1,2 --run x | (did you mean fedprox?)
# settings
train demo --set learner.lr=0.1     | (did you mean learner.learning_rate?)
train demo --set lr=0.1             | lr is not a setting (did you mean learner.learning_rate?)
train demo --set gamma=0.9          | (did you mean learner.discount?)
train demo --set learning_rate=0.1  | (did you mean learner.learning_rate?)
train demo --set learner.batch_size=10 | (did you mean learner.minibatch?)
train demo --set leaner.steps=10    | leaner is not a setting (did you mean learner?)
train demo --set federation.client=3 | (did you mean federation.clients?)
train demo --set clients=3          | (did you mean federation.clients?)
train demo --set learner=3          | learner must be a table of settings, not 3
train demo --set learner            | 'learner' is not of the form dotted.key=value
train demo --set =3                 | '=3' is not of the form dotted.key=value
train demo --set learner.=3         | 'learner.=3' is not of the form dotted.key=value
train demo --set .steps=3           | '.steps=3' is not of the form dotted.key=value
train demo --set a.b.c=3            | a.b.c is not a setting; settings are of the form group.name
train demo --set learner.steps=     | learner.steps must be a whole number, not ''
train demo --set learner.steps=1.5  | learner.steps must be a whole number, not 1.5
train demo --set learner.steps=0    | learner.steps must be at least 1, not 0
train demo --set learner.learning_rate=-1  | learner.learning_rate must be above 0
train demo --set learner.learning_rate=nan | learner.learning_rate must be a number, not nan
train demo --set learner.discount=1.5      | learner.discount must be at most 1, not 1.5
train demo --set learner.hidden=64  | learner.hidden must be a list, not 64
train demo --set learner.optimiser=sgdd    | one of sgd, adam, not 'sgdd' (did you mean sgd?)
train demo --set federation.clients=0      | federation.clients must be at least 1, not 0
train demo --set federation.clients_per_round=1000 | must be at most federation.clients (60)
train demo --set algorithm.d_global=-1     | algorithm.d_global must be above 0
train demo --algorithm fedavg --set algorithm.d_global=1   | the algorithm fedavg has: distance
train demo --algorithm fedavg --set algorithm.name=fedkl   | algorithm.name is given twice
train demo --set world.name=reachr  | there is no world 'reachr' (did you mean reacher?)
train demo --set world.gravity=3    | world.gravity is not a setting; the world reacher has:
train cartpole --set world.clients.gravty=3        | (did you mean gravity?)
train cartpole --set 'world.clients.gravity={uniform=[15,5]}' | two numbers, the smaller one first
train cartpole --set world.clients.gravity=heavy   | must be a number, a list, or a table
train demo --set aggregation.reduce=medain | (did you mean median?)
train demo --set 'aggregation.each=[clp]'  | (did you mean clip?)
train demo --set selection.name=best       | there is no selector 'best'; available:
train demo --set checkpoint.keep_best=maybe | must be true or false, not 'maybe'
train demo --set evaluation.every=-1       | evaluation.every must be at least 1, not -1
train demo --set seed=abc           | seed must be a whole number, not 'abc'
train demo --set learner.steps=3 learner.steps=4   | learner.steps is given twice: as 3 and as 4
train --set learner.steps=3 demo    | put PRESET first
train demo learner.steps=3          | (a setting is changed by --set learner.steps=3)
train demo --learner.steps=3        | (a setting is changed by --set learner.steps=3)
# numbers
train demo --seed -1                | seed must be at least 0, not -1
train demo --seed one               | argument --seed: must be a whole number, not 'one'
train demo --seed 99999999999       | seed must be at most 2147483647
train demo --rounds 0               | federation.rounds must be at least 1, not 0
train demo --rounds 2.5             | argument --rounds: must be a whole number, not '2.5'
train demo --rounds                 | argument --rounds: expected one argument
train demo --rounds 3 --rounds 4    | --rounds is given twice
train demo --rounds 3 --set federation.rounds=4    | federation.rounds is given twice
compare demo --algorithms fedkl --run x --seeds 0  | --seeds must be at least 1, not 0
compare demo --algorithms fedkl --run x --seeds 0,1 | --seeds: must be a whole number, not '0,1'
compare demo --algorithms fedkl --run x --jobs 0   | --jobs must be at least 1, not 0
compare demo --algorithms fedkl --run x --first-seed -1    | --first-seed must be at least 0
compare demo --algorithms fedkl --run x --vary learner.d_local   | not of the form dotted.key=value
compare demo --algorithms fedkl --run x --vary learner.d_locl=1,2 | (did you mean learner.d_local?)
compare demo --algorithms fedkl --run x --vary learner.d_local=1,1 | --vary has the same twice
compare demo --algorithms fedkl --run x --vary seed=1,2 | give how many seeds by --seeds N
compare demo --algorithms fedkl --run x --vary algorithm.name=fedavg | algorithms by --algorithms
compare demo --algorithms fedkl --run x --references together | available: alone, centralised
compare demo --algorithms fedkl --run x --json --csv   | --csv: not allowed with argument --json
compare demo --algorithms fedkl --run notes  | notes exists and is not empty; give a new directory
compare run --algorithms fedkl --run x       | run is the directory of a run
# plugins
train demo --plugin nosuch.py       | the plugin nosuch.py is not a file
train demo --plugin notes           | the plugin notes is not a file
train demo --plugin notes.txt       | the plugin notes.txt is not a Python file
train demo --plugin syntax.py       | syntax.py, line 1: invalid syntax
train demo --plugin nameless.py     | needs a `name` to be registered as an algorithm
train demo --plugin taken.py        | there are two algorithms named 'fedkl'
train demo --plugin silent.py --algorithm mine   | there is no algorithm 'mine'
train gone.toml                     | gone.py is not a file
# where and how
train demo --run run                | run holds a run already; go on with it by `fedkl resume run`
train demo --run notes              | notes is not empty; give a new directory for a new run
train demo --run=                   | argument --run: must not be empty
train demo --run /proc/x/y          | cannot create /proc/x/y: nothing can be made in that place
train demo --run notes.txt          | notes.txt is a file; give a directory for the run
train demo --device gpu             | JAX takes the best device that there is: JAX_PLATFORMS=cpu
train demo --gpu                    | JAX takes the best device that there is: JAX_PLATFORMS=cpu
train demo --verbose                | unrecognized arguments: --verbose; see
train demo --engine raay            | invalid choice: 'raay' (did you mean ray?)
train demo --actors 3               | --actors is for the engine ray
train demo --ray nohost             | the address of a Ray cluster must be HOST:PORT, not 'nohost'
traim demo                          | invalid choice: 'traim' (did you mean train?)
Train demo                          | invalid choice: 'Train' (did you mean train?)
# resume, evaluate, export, check, heterogeneity, report
resume nosuch                       | nosuch does not exist
resume notes                        | notes is not a run directory: it has no config.toml
resume notes.txt                    | notes.txt is a file, and the directory of a run is asked for
check notes.txt                     | notes.txt is a file, and the directory of a run is asked for
report notes.txt                    | notes.txt is a file, and the directory of a run is asked for
resume cut                          | cut/config.toml is not valid TOML
resume bare                         | bare has a log of 2 rounds and no checkpoint
resume run --until 0                | --until must be at least 1, not 0
resume run --rounds 1               | rounds must be at least 2, which run has, not 1
resume run --rounds 3 --until 5     | --until 5 is beyond --rounds 3
resume run other                    | unrecognized arguments: other
evaluate nosuch                     | nosuch does not exist
evaluate notes                      | notes is not a run directory
evaluate run --episodes 0           | --episodes must be at least 1, not 0
evaluate run --best                 | run has kept no best round: that takes checkpoint.keep_best
evaluate run --round 1              | unrecognized arguments: --round 1; see
evaluate run --client 0             | --client says whose world is filmed, and needs --video
evaluate run --video film.avi       | ends in .mp4 or .gif, and film.avi does not
export run policy.pt                | ends in .onnx or .npz, not to policy.pt
export run nosuch/policy.npz        | the folder nosuch does not exist
export run policy.npz --client 99   | client must be from 0 to 2, not 99
check notes                         | notes is not a run directory
heterogeneity run --round 99        | --round must be from 0 to 2, where the run stands
heterogeneity run --trajectories 0  | heterogeneity.trajectories must be at least 4, not 0
heterogeneity run --plot x.xyz      | ends in .png, .svg or .pdf, and x.xyz does not
report nosuch                       | nosuch does not exist
report notes                        | 'notes' is no run, and holds none
report run --target high            | argument --target: must be a number, not 'high'
report run bare --alike             | argument --alike: expected one argument
report run bare --alike ./bare      | --alike names bare, which is reported itself
report run --target nan             | target must be a finite number, not nan
report run --out notes.txt          | a file of that name is in the way
# tune and reproduce
tune demo --algorithm fedkl --run x | the following arguments are required: --grid
tune demo --algorithm fedkl --run x --grid learner.d_local=      | lacks a value
tune demo --algorithm fedkl --run x --grid learner.d_local=1,big | must be a number, not 'big'
tune demo --algorithm fedkl --run x --grid learner.d_local=1,2 --halvings 9 | 15 rounds are too few
tune demo --algorithm fedkl --run x --grid learner.d_local=1,2 --halvings 1 --rounds 1 | 1 round is
tune-d-global demo --run x --d-global-factor 0   | must be a finite number above 0, not 0.0
reproduce reacher-init --run x      | (did you mean reacher-init-state?)
reproduce price                     | say with --run where the runs are to be kept
reproduce price --run x --rounds 0  | --rounds must be at least 1, not 0
reproduce report --run nosuch       | nosuch holds no experiments
# show, describe, list, completion
show demo --set learner.lr=1        | (did you mean learner.learning_rate?)
describe demo --plot x.xyz          | ends in .png, .svg or .pdf, and x.xyz does not
list demo                           | unrecognized arguments: demo
completion fishy                    | available: bash, zsh, tcsh
# the network
keys x                              | the following arguments are required: --clients
keys x --clients 0                  | there must be 1 to 100000 clients, not 0
keys x --clients 3 --days 0         | a certificate can be valid for 1 to 3650 days, not 0
keys notes.txt --clients 3          | cannot use notes.txt: a file of that name is in the way
serve demo --local 0                | --local must be at least 1, not 0
serve demo --port 99999             | --port must be from 1 to 65535, not 99999
serve demo --keys nosuch            | cannot read nosuch/ca.crt: it does not exist
serve demo --local 3 --wait -1      | --wait must be a number of seconds above 0, not -1
serve demo --host nosuch.invalid --insecure-network | the host 'nosuch.invalid' is not known here
status run                          | run is not served over a network
join localhost --client 0 --insecure-network | 'localhost' is not an address such as 192.0.2.7:9092
join localhost:9092 --client -1     | --client must be a number from 0, not -1
join localhost:9092 --client 0      | --keys must say where ca.crt and this client's key are
# the theory
theory verfy                        | (did you mean verify?)
theory verify --families 0          | families must be at least 1, not 0
theory verify --claim thorem-1      | (did you mean theorem-1?)
theory verify --family family.npz   | family.npz is not an .npz file of arrays
theory iterate --gamma 2            | gamma must be a number strictly between 0 and 1
theory iterate --family gird        | --family must be random, grid, chain or FILE.npz, not gird
theory iterate --family grid --states 5 | --states is not an option of --family grid
theory report notes.txt             | a file of that name is in the way
"""
"""Command lines, and a part of the answer to each."""

_LINES = [line for line in MISTAKES.splitlines() if line and not line.startswith("#")]
CASES = [tuple(part.strip() for part in line.split("|", 1)) for line in _LINES]
NEEDS = {
    "compare": "matplotlib",
    "keys": "cryptography",
    "serve": "flwr",
    "join": "flwr",
    "completion": "shtab",
}
NEEDED_BY = {"gym": "gymnasium", "pettingzoo": "pettingzoo", "--ray": "ray", "--plot": "matplotlib"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder as a user's may be: a run, damaged ones, notes, settings and plugins."""
    place = tmp_path_factory.mktemp("stranger")
    for name, content in FILES.items():
        (place / name).parent.mkdir(exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        (place / name).write_bytes(data)
    finished_runs.finish(place / "run")
    shutil.copytree(place / "run", place / "cut")
    (place / "cut/config.toml").write_text("learner = [")
    shutil.copytree(place / "run", place / "bare")
    shutil.rmtree(place / "bare/checkpoints")
    return place


def listing(folder: Path):
    """All that is there, but for the locks of runs."""
    return {
        path: path.stat().st_mtime_ns if path.is_file() else None
        for path in folder.rglob("*")
        if path.name != ".lock"
    }


@pytest.mark.parametrize(("line", "answer"), CASES, ids=[line for line, _ in CASES])
def test_a_mistake_is_answered_in_one_sentence_and_writes_nothing(
    folder, line, answer, monkeypatch, capsys
):
    words = shlex.split(line)
    for package in (NEEDS.get(words[0]), *(NEEDED_BY.get(w.split(":")[0]) for w in words)):
        if package:
            pytest.importorskip(package)
    monkeypatch.chdir(folder)
    before = listing(folder)
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("fedkl")
    assert len(err.splitlines()) == 1
    assert answer in err
    assert listing(folder) == before


def test_there_are_at_least_a_hundred():
    assert len({line for line, _ in CASES}) == len(CASES) >= 100
