"""What the page on clusters shows can be used as it is."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from fedkl.cli.parser import parser

PAGE = (Path(__file__).parents[2] / "docs/cluster.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands():
    """The commands of fedkl's, also those in scripts and in quotes."""
    found = re.findall(r"(?:^ +|-c ')(fedkl [a-z]+ .*?)(?:'?)$", PAGE, re.MULTILINE)
    return [re.sub(r"\s#.*", "", command).replace("$(hostname -i)", "head") for command in found]


def test_every_command_is_one_that_fedkl_understands():
    assert len(commands()) == 7
    for command in commands():
        program, *arguments = shlex.split(command)
        assert program == "fedkl"
        parser().parse_args(arguments)


def test_every_option_of_ray_start_is_one_that_ray_has():
    pytest.importorskip("ray")
    from ray.scripts.scripts import start

    there = {option for parameter in start.params for option in parameter.opts}
    shown = re.findall(r"ray start (.*)", PAGE.replace("\\\n", " "))
    used = {option for text in shown for option in re.findall(r"--[a-z-]+", text)}
    assert used >= {"--head", "--address", "--node-ip-address", "--port"}
    assert used <= there


def test_the_script_for_slurm_is_one_that_bash_understands():
    (script,) = blocks("bash")
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0


def test_the_script_for_slurm_hands_its_cpus_on_to_srun():
    (script,) = blocks("bash")
    assert script.index("export SRUN_CPUS_PER_TASK=") < script.index("srun ")


def test_the_cluster_for_kubernetes_has_a_token_and_one_image_and_its_volume_is_made():
    yaml = pytest.importorskip("yaml")
    (text,) = blocks("yaml")
    claim, cluster = yaml.safe_load_all(text)
    spec = cluster["spec"]
    (volume,) = spec["headGroupSpec"]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert spec["authOptions"] == {"mode": "token"}
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    images = {g["template"]["spec"]["containers"][0]["image"] for g in groups}
    assert len(images) == 1
