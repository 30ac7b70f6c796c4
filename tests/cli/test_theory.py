"""`fedkl theory` as a user meets it."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from fedkl import cli, tabular


def call(capsys, *arguments):
    """Runs a command in this process: exit code, stdout, stderr."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(["theory", *map(str, arguments)])
    out, err = capsys.readouterr()
    return exit_.value.code, out, err


def test_verify_prints_every_claim_with_its_verdict(capsys):
    code, out, err = call(capsys, "verify", "--families", 30)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    (theorem,) = [line for line in lines if line.startswith("theorem-1 ")]
    assert theorem.endswith("holds")
    (corollary,) = [line for line in lines if line.startswith("corollary-1 ")]
    assert "false (seed " in corollary
    (vacuous,) = [line for line in lines if line.startswith("corollary-2 ")]
    assert vacuous.endswith("holds but vacuous")


def test_a_counterexample_is_found_again_from_its_seed(capsys):
    _, out, _ = call(capsys, "verify", "--families", 30, "--json")
    claims = {claim["claim"]: claim for claim in json.loads(out)["claims"]}
    seed = claims["corollary-1"]["counterexample_seed"]
    _, out, _ = call(capsys, "verify", "--families", 1, "--seed", seed, "--json")
    (again,) = [c for c in json.loads(out)["claims"] if c["claim"] == "corollary-1"]
    assert again["violations"] > 0
    assert again["counterexample_seed"] == seed


def test_verify_checks_the_claims_that_are_asked_for(capsys):
    code, out, _ = call(capsys, "verify", "--families", 3, "--claim", "trpo", "--claim", "vacuity")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:4:2]] == ["trpo", "vacuity"]


def test_verify_takes_a_users_own_family(capsys, tmp_path):
    path = tmp_path / "own.npz"
    tabular.save(tabular.families.windy_grid(agents=2, rows=2, columns=3, gamma=0.3), path)
    code, out, _ = call(capsys, "verify", "--families", 4, "--family", path, "--json")
    claims = {claim["claim"]: claim for claim in json.loads(out)["claims"]}
    assert code == 0
    assert claims["theorem-1"]["checks"] == 4 * 20 * 2
    tabular.save(tabular.families.chain(agents=2), path)
    code, _, err = call(capsys, "verify", "--families", 4, "--family", path)
    assert code == 2
    assert "the policy does not get there (rho = 0" in err


def test_verify_fails_when_the_documentation_is_contradicted(capsys, monkeypatch):
    import dataclasses

    from fedkl.tabular import verification

    claims = [dataclasses.replace(c, documented="holds") for c in verification.CLAIMS]
    monkeypatch.setattr("fedkl.tabular.claims.CLAIMS", claims)
    code, _, err = call(capsys, "verify", "--families", 20)
    assert code == 1
    assert "this contradicts docs/theory.md: " in err
    assert "corollary-1" in err


def test_iterate_prints_rounds_and_their_result(capsys):
    code, out, _ = call(capsys, "iterate", "--heterogeneity", "P", "--rounds", 30, "--states", 4)
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:8]] == ["0", "1", "2", "5", "10", "20", "30"]
    assert lines[8].startswith("second-order-exact: return ")
    assert "no round lost anything" in lines[8]


def test_iterate_prints_json_for_machines(capsys):
    code, out, _ = call(
        capsys, "iterate", "--algorithm", "qavg", "--gamma", 0.8, "--rounds", 3, "--json"
    )
    result = json.loads(out)
    assert code == 0
    assert (result["algorithm"], result["settings"]["gamma"]) == ("qavg", 0.8)
    assert len(result["returns"]) == 4
    assert result["guarantees"] == [None] * 3
    assert np.shape(result["policy"]) == (10, 4)


@pytest.mark.parametrize("algorithm", ["paper", "second-order", "common-radius", "pavg", "qavg"])
def test_iterate_lets_some_agents_take_part(capsys, algorithm):
    code, out, _ = call(
        capsys, "iterate", "--algorithm", algorithm, "--rounds", 3, "--participants", 2,
        "--states", 3, "--json",
    )  # fmt: skip
    assert code == 0
    assert len(json.loads(out)["returns"]) == 4


def test_iterate_takes_a_users_own_family(capsys, tmp_path):
    tabular.save(tabular.families.chain(agents=3), tmp_path / "own.npz")
    path = tmp_path / "own.npz"
    code, out, _ = call(capsys, "iterate", "--family", path, "--rounds", 2, "--json")
    assert code == 0
    assert json.loads(out)["family"] == str(path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["verify", "--families", 0], "families must be at least 1, not 0"),
        (["verify", "--seed", -1], "seed must be at least 0, not -1"),
        (
            ["verify", "--claim", "theorem-9"],
            "--claim must be one of performance-difference,",
        ),
        (["verify", "--family", "no.npz"], "no.npz: No such file"),
        (["iterate", "--algorithm", "sgd"], "--algorithm must be one of paper, second-order,"),
        (["iterate", "--rounds", -1], "rounds must be at least 0, not -1"),
        (["iterate", "--gamma", 1], "gamma must be a number strictly between 0 and 1, not 1.0"),
        (["iterate", "--gamma", 0.9999999999], "gamma must be at most 1 - 1e-08, not 0.9999999999"),
        (["iterate", "--gamma", "nan"], "gamma must be a number strictly between 0 and 1, not nan"),
        (["iterate", "--heterogeneity", "Q"], "heterogeneity must be one of none, mu, P, R, all"),
        (["iterate", "--level", 2], "level must be between 0 and 1, not 2.0"),
        (["iterate", "--agents", 0], "a family needs at least one of agents, not 0"),
        (
            ["iterate", "--concentration", 0],
            "concentration must be finite and at least 1e-06",
        ),
        (["iterate", "--family", "gird"], "--family must be random, grid, chain or FILE.npz, not"),
        (["iterate", "--family", "no.npz"], "no.npz: No such file"),
        (["iterate", "--family", "grid", "--actions", 2], "--actions is not an option of --family"),
        (
            ["iterate", "--algorithm", "paper", "--participants", 6],
            "participants must be from 1 to the number of agents, 5, not 6",
        ),
        (
            ["iterate", "--participants", 2],
            "second-order-exact makes one step for all agents: --participants has no meaning",
        ),
    ],
)
def test_a_mistake_ends_in_one_sentence(capsys, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_family_with_a_mistake_is_named_in_one_sentence(capsys, tmp_path):
    family = tabular.families.chain(agents=2)
    transitions = family.transitions.copy()
    transitions[1, 3, 0] *= 0.5
    np.savez(
        tmp_path / "bad.npz", initial=family.initial, transitions=transitions,
        rewards=family.rewards, gamma=0.9,
    )  # fmt: skip
    code, _, err = call(capsys, "iterate", "--family", tmp_path / "bad.npz")
    assert code == 2
    assert "agent 1, state 3, action 0: transitions must sum to 1" in err


def test_theory_needs_no_jax():
    program = (
        "import sys; import fedkl.tabular, fedkl.cli.theory, fedkl.report.theory; "
        "sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_closed_output_is_no_error():
    command = (
        f"{sys.executable} -m fedkl theory verify --families 2 | true; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")


def test_interrupted_it_says_so(tmp_path, child):
    run = child("-m", "fedkl", "theory", "report", tmp_path)
    run.stdout.readline()
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert err.splitlines()[-1] == "fedkl: interrupted"


def test_the_tables_of_the_page_are_printed_as_markdown(capsys):
    code, out, err = call(capsys, "tables", "--families", 1)
    assert (code, err) == (0, "")
    head, rule, *rows = out.splitlines()
    assert head.startswith("| claim | source | checks |")
    assert rule == "|---|---|---|---|---|---|"
    assert len(rows) == len(tabular.claims.CLAIMS)
