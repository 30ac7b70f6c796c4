"""What a quick look points to, and whether it is what the whole says."""

import numpy as np
import tables

from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.experiment import FAILS, HOLDS, OPEN
from fedkl.experiments.reproduce.judges import JUDGES
from fedkl.experiments.reproduce.quick import quick_pointers, with_pointers

EXPERIMENT = EXPERIMENTS["reacher-dynamics"]
STEADY = np.concatenate([np.linspace(-40, -8, 30), np.full(170, -8.0)])


def falling(first, last):
    values = STEADY.copy()
    values[first:last] = -35.0
    return values


def letter(seeds=3, **curves):
    return tables.of_group(
        "reacher-dynamics",
        "letter",
        {a: [c + 0.01 * s for s in range(seeds)] for a, c in curves.items()},
    )


def test_one_seed_points_to_what_its_first_rounds_say():
    # Rivals fall in rounds 40 to 59, which the quick look sees.
    falls = falling(40, 60)
    runs = letter(fedkl=STEADY, fedavg=falls, fedprox=falls, fmarl=STEADY)
    pointed = quick_pointers(EXPERIMENT, runs)
    assert (pointed["stable"], pointed["slow"]) == (HOLDS, OPEN)


def test_what_happens_later_is_not_seen():
    later = falling(100, 160)
    runs = letter(fedkl=STEADY, fedavg=later, fedprox=later, fmarl=STEADY)
    assert quick_pointers(EXPERIMENT, runs)["stable"] == FAILS
    whole = tables.verdicts(JUDGES[EXPERIMENT.judge](EXPERIMENT, runs))
    assert whole["stable"] == HOLDS


def test_without_all_that_is_needed_it_points_nowhere():
    assert quick_pointers(EXPERIMENT, letter(fedkl=STEADY, fedavg=STEADY)) == {}


def test_a_quick_finding_says_what_it_points_to_and_has_no_verdict():
    falls, quick = falling(40, 60)[:60], EXPERIMENT.quickly()
    runs = letter(1, fedkl=STEADY[:60], fedavg=falls, fedprox=falls, fmarl=STEADY[:60])
    finding = with_pointers(quick, runs, JUDGES[quick.judge](quick, runs))
    stable, slow, _ = finding.verdicts
    assert stable.verdict == OPEN
    assert stable.measured.endswith(" This alone points to: holds.")
    assert "points to" not in slow.measured
