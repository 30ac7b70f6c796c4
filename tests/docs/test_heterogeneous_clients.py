"""What the page on clients shows can be run."""

import re
import tomllib
from pathlib import Path

import pytest

import fedkl
from fedkl.worlds import Differences, Pendulum
from fedkl.worlds.parameters import distortions

PAGE = (Path(__file__).parents[2] / "docs" / "heterogeneous-clients.md").read_text(encoding="utf-8")
SAID = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)


def test_the_file_is_a_config(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    parameters = fedkl.preset(str(path)).clients()
    assert list(parameters) == ["gravity", "length", "initial_low", "initial_high", "action_delay"]


def test_the_python_runs(capsys):
    first, own = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(first, {})
    assert len(capsys.readouterr().out.strip("[]\n").split()) == 10
    scope = {}
    exec(own, scope)
    assert scope["Planets"].parameters[0].nominal == 9.8


@pytest.mark.parametrize("cell", SAID)
def test_every_way_to_draw_can_be_drawn(cell):
    for code in re.findall(r"`(.*?)`", cell):
        text = code if code.startswith(("gravity", "initial", "action")) else f"gravity = {code}"
        table = Differences.from_table(tomllib.loads(text))
        world = fedkl.preset("cartpole").world if "initial" in text else Pendulum()
        type(world)(differences=table)


def test_every_distortion_is_named():
    assert all(f"`{parameter.name}`" in PAGE for parameter in distortions(1))


def test_the_lines_of_clients_csv_are_those_of_the_preset():
    from fedkl.training.directory import as_csv

    shown = re.findall(r"^    (client,.*)\n    (.*)\n    (.*)\n", PAGE, re.MULTILINE)[0]
    assert as_csv(fedkl.preset("reacher-init-state").clients()).startswith("\n".join(shown))
