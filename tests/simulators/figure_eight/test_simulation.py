"""The simulation against SUMO itself, against closed forms, and against numbers worked by hand.

SUMO holds one simulation in a process, so all tests of a placement share one.
"""

import importlib.util
import itertools
import math

import numpy as np
import pytest

from fedkl.core.errors import UserError
from fedkl.simulators.base import Recipe, Seed, SimulatorError
from fedkl.simulators.episodes import EpisodeJob, run_job
from fedkl.simulators.figure_eight import simulation as module
from fedkl.simulators.figure_eight.placement import ALTERNATING, MIXED
from fedkl.simulators.figure_eight.simulation import Simulation, checked_network, reward
from fedkl.simulators.pool import SimulatorProcess

LOOP = 421.94
# Flow's starts along the loop, with the lengths of the lanes added up by hand.
STARTS = [
    0, 39.4, 68.167, 96.754, 125.521, 154.289, 183.056, 211.641, 240.408, 272.375, 300.963,
    329.73, 358.497, 387.264,
]  # fmt: skip
STAND = np.zeros((7, 1), np.float32)


@pytest.fixture(scope="module", params=[ALTERNATING, MIXED])
def road(request):
    simulation = Simulation(request.param)
    simulation.placement = request.param
    yield simulation
    simulation.close()


@pytest.fixture
def sim(road):
    """At its start, without noise on the human drivers; what is stubbed is put back."""
    own = dict(vars(road))
    road.reset(Seed((0,)))
    road._noise = itertools.repeat([0.0] * 7)
    yield road
    vars(road).update({name: own[name] for name in vars(road) if name.startswith("_")})


@pytest.fixture
def commands(sim):
    """The speeds that a step commands, by the vehicle's number."""
    asked = {}
    slow_down = sim._slow_down

    def record(name, speed, duration):
        assert duration == 1e-3
        asked[int(name[:-1])] = speed
        slow_down(name, speed, duration)

    sim._slow_down = record
    return asked


def lanes_of(simulation):
    """Of each vehicle, by where the lanes start."""
    lanes = simulation._network.lanes
    starts = [lane.start for lane in lanes]
    return [lanes[np.searchsorted(starts, x, "right") - 1] for x in simulation.x]


def drive(simulation, seed, steps, mean=1.0):
    """All that an episode with random accelerations shows."""
    random = np.random.default_rng(seed)
    seen = [simulation.reset(Seed((seed,)))]
    rewards = []
    for _ in range(steps):
        outcome = simulation.step(random.normal(mean, 1, (7, 1)).astype(np.float32))
        seen.append(outcome.observation)
        rewards.append(outcome.reward)
        if outcome.terminated:
            break
    return np.stack(seen), np.array(rewards)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("mean", [0.0, 1.0, 3.0])
def test_positions_lanes_and_leaders_are_sumos_in_every_step(road, mean):
    vehicle = road._sumo.vehicle
    start = {f"{lane.edge}_0": lane.start for lane in road._network.lanes}
    random = np.random.default_rng(int(mean))
    road.reset(Seed((1,)))
    on_same_lane = 0
    for _ in range(500):
        road.step(random.normal(mean, 1, (7, 1)).astype(np.float32))
        where = [vehicle.getLaneID(name) for name in road._names]
        theirs = [start[lane] + vehicle.getLanePosition(name)
                  for lane, name in zip(where, road._names, strict=True)]  # fmt: skip
        # The loop is closed: 421.94 is 0.
        apart = (np.subtract(road.x, theirs) + LOOP / 2) % LOOP - LOOP / 2
        assert np.abs(apart).max() < 1e-6
        assert road.speeds == [vehicle.getSpeed(name) for name in road._names]
        ours = [f"{lane.edge}_0" for lane in lanes_of(road)]
        # On the very border rounding decides.
        assert all(a == b or abs(x - start[b]) < 1e-6 or abs(x - start[a]) < 1e-6
                   for a, b, x in zip(ours, where, road.x, strict=True))  # fmt: skip
        for i, name in enumerate(road._names):
            ahead = (i + 1) % 14
            if where[i] == where[ahead] and road.x[i] < road.x[ahead]:
                on_same_lane += 1
                leader, distance = vehicle.getLeader(name)
                assert leader == road._names[ahead]
                assert distance + 2.5 == pytest.approx(road.x[ahead] - road.x[i] - 5, abs=1e-6)
    assert on_same_lane > 2000


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_on_the_rings_sumo_moves_vehicles_by_its_closed_form(sim, commands, mean):
    """v' = min(commanded, IDM), where IDM is that of SUMO 1.28, whose step depends on no noise.

    Whose leader is far away may be a few mm/s slower, for what comes at the lane's end.
    """
    random = np.random.default_rng(5)
    errors, near = [], []
    for _ in range(800):
        x, speeds, edges = sim.x, sim.speeds, [lane.edge for lane in lanes_of(sim)]
        sim.step(random.normal(mean, 1, (7, 1)).astype(np.float32))
        for i in range(14):
            ahead = (i + 1) % 14
            if "ring" not in edges[i] or edges[i] != edges[ahead] or x[i] > x[ahead]:
                continue
            v, gap = speeds[i], x[ahead] - x[i] - 5
            decel = 1.5 if sim.placement[i] == "h" else 4.5
            wanted = 2.5 + max(0, v + v * (v - speeds[ahead]) / (2 * math.sqrt(2.6 * decel)))
            idm = max(0, v + 0.26 * (1 - (v / 30) ** 4 - (wanted / gap) ** 2))
            errors.append(abs(sim.speeds[i] - min(commands[i], idm)))
            near.append(gap < 70)
    errors, near = np.array(errors), np.array(near)
    assert near.sum() > 2000
    assert np.mean(errors[near] < 1e-6) >= 0.999
    assert errors[~near].max(initial=0.0) < 0.01


def test_an_observation_is_the_vehicle_ahead_itself_and_the_one_behind_in_sumos_own_numbers(road):
    robots = [i for i, letter in enumerate(road.placement) if letter == "r"]
    seen, _ = drive(road, 4, 300)
    start = {f"{lane.edge}_0": lane.start for lane in road._network.lanes}
    vehicle = road._sumo.vehicle
    for row, i in zip(seen[-1], robots, strict=True):
        for k, number in enumerate([(i + 1) % 14, i, (i - 1) % 14]):
            name = f"{number}{road.placement[number]}"
            at = start[vehicle.getLaneID(name)] + vehicle.getLanePosition(name)
            assert row[2 * k] == pytest.approx(vehicle.getSpeed(name) / 30, abs=1e-6)
            assert row[2 * k + 1] == pytest.approx(at / LOOP, abs=1e-6)


# The start.


def test_everybody_starts_at_rest_where_flow_put_them(sim):
    assert sim.x == pytest.approx(STARTS, abs=1e-9)
    assert sim.speeds == [0.0] * 14
    assert sim.picture() == pytest.approx(np.array(STARTS + [0] * 14), abs=1e-4)


def test_the_first_observation_by_hand(road):
    indices = {ALTERNATING: [1, 3, 5, 7, 9, 11, 13], MIXED: [1, 4, 5, 7, 11, 12, 13]}
    seen = road.reset(Seed((0,)))
    assert seen.shape == (7, 6)
    assert seen.dtype == np.float32
    expected = [
        [0, STARTS[(i + 1) % 14] / LOOP, 0, STARTS[i] / LOOP, 0, STARTS[i - 1] / LOOP]
        for i in indices[road.placement]
    ]
    np.testing.assert_allclose(seen, expected, atol=1e-6)
    # Vehicle 1 is at the start of `top`, after 30 m of `bottom` and 9.4 m of the crossing.
    np.testing.assert_allclose(seen[0], [0, 68.167 / LOOP, 0, 39.4 / LOOP, 0, 0], atol=1e-6)
    # Ahead of the last vehicle drives the first.
    assert seen[-1, 1] == 0


# Drivers.


def driver_model(simulation, i):
    """What a human's speed is to become, by the formula and SUMO's own leader; None in a junction.

    (Treiber et al. 2000; numbers as Flow has them.)
    """
    vehicle, name = simulation._sumo.vehicle, simulation._names[i]
    if vehicle.getLaneID(name).startswith(":"):
        return None
    v, leader = vehicle.getSpeed(name), vehicle.getLeader(name, 100.0)
    pull = 0.0
    if leader and leader[0]:
        wanted = 2 + max(0, v + v * (v - vehicle.getSpeed(leader[0])) / (2 * math.sqrt(1.5)))
        pull = (wanted / (leader[1] + 2.5)) ** 2
    return max(0, v + 0.1 * (1 - (v / 30) ** 4 - pull))


@pytest.mark.parametrize("mean", [0.0, 1.0, 3.0])
def test_humans_are_told_what_the_driver_model_says_of_sumos_own_leaders(sim, commands, mean):
    humans = [i for i in range(14) if sim.placement[i] == "h"]
    borders = np.array([lane.start for lane in sim._network.lanes])
    asked, leader = [], sim._leader
    sim._leader = lambda name, sight: asked.append(name) or leader(name, sight)
    random = np.random.default_rng(3)
    compared = 0
    for _ in range(600):
        expected = {i: driver_model(sim, i) for i in humans}
        x = sim.x
        commands.clear()
        sim.step(random.normal(mean, 1, (7, 1)).astype(np.float32))
        for i in humans:
            if np.abs(x[i] - borders).min() > 1e-6:  # there rounding decides
                compared += 1
                assert commands.get(i) == pytest.approx(expected[i], abs=1e-6)
    assert compared > 4000
    # SUMO is asked before crossings, and where the next vehicle is hardly in sight.
    assert 0 < len(asked) < compared / 3


def test_where_the_next_crossing_begins_by_hand(sim):
    """After 30 m of `bottom`, and after the first crossing (9.4), `top` (30), `upper_ring` (141.37)
    and `right` (30), with corners of 0.1 m; from there on it is the first one again."""
    until = {
        lane.edge: end
        for lane, end in zip(sim._network.lanes, sim._clear_until, strict=True)
        if not lane.internal
    }
    assert until == pytest.approx(
        {
            **dict(bottom=30.0, top=240.97, upper_ring=240.97, right=240.97),
            **dict(left=LOOP + 30, lower_ring=LOOP + 30),
        }
    )
    assert {end for lane, end in zip(sim._network.lanes, sim._clear_until, strict=True)
            if lane.internal} == {0.0}  # fmt: skip


def test_steps_for_a_job_are_those_of_the_environment(road):
    """`step_all` writes where it is told; everything else is `step`."""
    actions = np.random.default_rng(0).normal(1, 1, (100, 7, 1, 1)).astype(np.float32)
    road.reset(Seed((1,)))
    by_step = [road.step(action[:, 0]) for action in actions]
    road.reset(Seed((1,)))
    following = np.empty((7, 1, 6), np.float32)
    for action, step in zip(actions, by_step, strict=True):
        outcomes = road.step_all([road], [0], action, following)
        assert outcomes == ([step.reward], [])
        assert np.array_equal(following[:, 0], step.observation)


def test_a_crash_in_a_job_ends_everybodys_episode(sim):
    sim._teleports = lambda: 1
    following = np.empty((7, 1, 6), np.float32)
    assert sim.step_all([sim], [0], STAND[:, None], following) == ([0.0], [(0, True, False)])
    assert np.isfinite(following).all()


@pytest.mark.parametrize("placement", ["h" * 13 + "r", "r" * 14])
def test_one_agent_alone_and_no_human_at_all_can_drive(placement):
    worker = SimulatorProcess()
    worker.open(Recipe(f"{Simulation.__module__}:Simulation", {"placement": placement}))
    try:
        agents = placement.count("r")
        assert worker.ask("reset", Seed((0,))).shape == (agents, 6)
        step = worker.ask("step", np.ones((agents, 1), np.float32))
    finally:
        worker.close()
    assert step.observation.shape == (agents, 6)
    assert 0 < step.reward < 0.1


def test_a_human_who_stands_accelerates_by_the_driver_model(sim, commands):
    """Vehicle 2 or 4, on a ring or before it, stands 23.768 m or so behind its leader."""
    sim.step(STAND)
    human = next(i for i in (3, 4) if sim.placement[i] == "h")
    gap = STARTS[human + 1] - STARTS[human] - 5
    assert gap == pytest.approx(23.768, abs=2e-3)
    # 1 - (2 / 23.768)^2 = 0.992919, for 0.1 s.
    assert commands[human] == pytest.approx(0.0992919, abs=2e-6)


def test_a_human_who_closes_in_brakes_by_the_driver_model(sim, commands):
    """10 m/s, 23.768 m behind one of 4 m/s.

    s* = 2 + 10 + 10 * 6 / (2 sqrt(1.5)) = 36.494897, and the acceleration is
    1 - (1/3)^4 - (36.494897 / 23.768)^2 = 1 - 0.012346 - 2.357648 = -1.369994.
    """
    human = next(i for i in (3, 4) if sim.placement[i] == "h")
    sim.x[human + 1] = sim.x[human] + 28.768
    sim.speeds[human : human + 2] = [10.0, 4.0]
    sim.step(STAND)
    assert commands[human] == pytest.approx(10 - 0.1369994, abs=1e-6)


def test_a_human_without_a_leader_only_minds_the_speed_limit(sim, commands):
    human = max(i for i in range(14) if sim.placement[i] == "h")
    sim.x[human] = 411.0  # the next one is beyond the lane's end
    sim.speeds[human] = 15.0
    for nobody in (None, ("", -1.0)):
        sim._leader = lambda name, sight, nobody=nobody: nobody
        sim.speeds[human], sim.x[human] = 15.0, 411.0
        sim.step(STAND)
        assert commands[human] == pytest.approx(15 + 0.1 * (1 - 0.5**4))


@pytest.mark.parametrize("distance", [-2.5, -2.5 + 1e-4, -2.5 - 1e-4])
def test_a_gap_of_nothing_is_a_full_stop_and_no_division_by_zero(sim, commands, distance):
    human = max(i for i in range(14) if sim.placement[i] == "h")
    sim.x[human] = 411.0
    sim.speeds[human] = 15.0
    sim._leader = lambda name, sight: (sim._names[0], distance)
    sim.step(STAND)
    assert commands[human] == 0.0


def test_inside_a_junction_sumo_drives_humans_and_agents_drive_themselves(sim, commands):
    human = max(i for i in range(14) if sim.placement[i] == "h")
    robot = max(i for i in range(14) if sim.placement[i] == "r")
    sim.x[human] = sim.x[robot] = 35.0  # between 30 and 39.4 is the crossing
    sim.step(np.ones((7, 1), np.float32))
    assert human not in commands
    assert commands[robot] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("asked", "speed", "commanded"),
    [(1.5, 4, 4.15), (100, 4, 4.3), (-100, 4, 3.7), (-3, 0.1, 0), (np.inf, 1, 1.3)],
)
def test_an_agents_acceleration_is_clipped_and_never_goes_backwards(
    sim, commands, asked, speed, commanded
):
    robot = max(i for i in range(14) if sim.placement[i] == "r")
    sim.speeds[robot] = speed
    sim.step(np.full((7, 1), asked, np.float32))
    assert commands[robot] == pytest.approx(commanded, abs=1e-6)


def test_the_noise_on_humans_has_its_deviation_and_is_each_ones_own(road):
    """sqrt(0.1) N(0, 0.2), so 0.063246."""
    rows = []
    for seed in range(100):
        road.reset(Seed((seed,)))
        rows.append(next(road._noise))
    noise = np.array(rows)
    assert noise.std(axis=0) == pytest.approx(np.full(7, 0.063246), rel=0.25)
    assert noise.std() == pytest.approx(0.063246, rel=0.07)
    assert np.abs(np.corrcoef(noise.T) - np.eye(7)).max() < 0.4


def test_humans_know_nothing_of_the_noise_on_actions(road):
    """Seeds that are folded from one another share nothing."""
    road.reset(Seed((3,), (5,)))
    human = np.array([next(road._noise) for _ in range(1500)])[:, 0]
    action = Seed((3,), (5,)).fold(1).generator().standard_normal(1500)
    assert abs(np.corrcoef(human, action)[0, 1]) < 0.1
    assert len({*human.tolist()}) == 1500


# Reward and ends.


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ([0.0] * 14, 0.0),
        ([5.0] * 14, 0.25),
        ([7.3] * 14, 0.365),
        ([20.0] * 14, 1.0),
        ([30.0] * 14, 0.5),
        ([50.0] * 14, 0.0),
        ([0.0] + [20.0] * 13, 1 - 1 / math.sqrt(14)),
        ([10.0] * 7 + [30.0] * 7, 0.5),
        ([8.0] * 7 + [4.0] * 7, 1 - math.sqrt((12**2 + 16**2) / 2) / 20),
    ],
)
def test_rewards_by_hand(speeds, expected):
    assert reward(speeds) == pytest.approx(expected, abs=1e-12)


def test_the_reward_of_a_step_is_that_of_the_speeds_it_leads_to(sim):
    for _ in range(20):
        outcome = sim.step(np.full((7, 1), 3, np.float32))
    speeds = [sim._sumo.vehicle.getSpeed(name) for name in sim._names]
    worst = 20 * math.sqrt(14)
    expected = (worst - np.linalg.norm(np.array(speeds) - 20)) / worst
    assert outcome.reward == pytest.approx(expected)
    assert outcome.terminated is False


def test_a_teleport_is_a_crash_without_reward(sim):
    sim._teleports = lambda: 1
    outcome = sim.step(STAND)
    assert (outcome.reward, outcome.terminated) == (0.0, True)
    assert np.isfinite(outcome.observation).all()


def crash(simulation, after):
    """Puts a vehicle onto the tail of the one ahead; returns the outcome of the next step."""
    drive(simulation, 9, after)
    vehicle, (one, other) = simulation._sumo.vehicle, simulation._names[1:3]
    vehicle.moveTo(one, vehicle.getLaneID(other), max(vehicle.getLanePosition(other) - 1, 0))
    return simulation.step(STAND)


@pytest.mark.parametrize("after", [5, 50, 200])
def test_after_a_real_crash_the_next_episode_is_what_it_would_have_been(road, after):
    undisturbed = drive(road, 1, 200)
    outcome = crash(road, after)
    assert (outcome.reward, outcome.terminated) == (0.0, True)
    assert same(drive(road, 1, 200), undisturbed)


def test_a_vehicle_that_sumo_loses_is_harm_and_no_crash(sim):
    step = sim._step

    def lose():
        sim._sumo.vehicle.remove(sim._names[3])
        return step()

    sim._step = lose
    with pytest.raises(SimulatorError, match="SUMO lost a vehicle"):
        sim.step(STAND)


def test_after_a_lost_vehicle_the_next_episode_is_what_it_would_have_been(road):
    undisturbed = drive(road, 1, 100)
    drive(road, 2, 30)
    road._sumo.vehicle.remove(road._names[3])
    assert same(drive(road, 1, 100), undisturbed)


# Reproducibility.


def test_a_seed_gives_the_same_bits_whatever_was_driven_before(road):
    first = drive(road, 1, 300)
    drive(road, 2, 77, mean=3.0)
    drive(road, 3, 5)
    assert same(drive(road, 1, 300), first)


def test_another_seed_gives_another_episode(road):
    def observations(seed):
        road.reset(Seed((seed,)))
        return [road.step(STAND).observation for _ in range(50)]

    assert same(observations(1), observations(1))
    assert not same(observations(1), observations(2))


def test_another_process_gives_the_same_bits(road, linear):
    actors = [linear(1.0, [0.0] * 6, 1.0, Seed((8,), (n,))) for n in range(7)]
    job = EpisodeJob((Seed((6,)),), actors, (300,), pictures=True)
    here = run_job([road], job)
    worker = SimulatorProcess()
    worker.open(Recipe(f"{Simulation.__module__}:Simulation", {"placement": road.placement}))
    try:
        there = worker.ask("job", job)
    finally:
        worker.close()
    assert same(here, there)
    assert here.pictures.shape == (301, 28)


# What may be wrong.


def test_a_missing_sumo_is_answered_with_what_to_install(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        module.importlib.util, "find_spec", lambda n, *a: None if n == "libsumo" else find_spec(n)
    )
    with pytest.raises(UserError, match=r"needs SUMO.*pip install -e '\.\[sumo\]'"):
        checked_network("")


def test_a_road_that_sumo_itself_refuses_is_answered_with_a_sentence(tmp_path):
    path = tmp_path / "mine.net.xml"
    text = checked_network("").read_text()
    # Whole for us, but without what SUMO needs.
    path.write_text(text.replace('<junction id="center"', '<junction id="centre"'))
    with pytest.raises(UserError) as caught:
        SimulatorProcess().open(
            Recipe(f"{Simulation.__module__}:Simulation", {"network": str(path)})
        )
    assert str(caught.value).startswith(f"SUMO refuses {path}: ")
    assert "\n" not in str(caught.value)
