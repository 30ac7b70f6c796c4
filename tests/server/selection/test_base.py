"""What a selector does when it says nothing else."""

from fedkl.server.selection import SELECTORS, RoundRobin, Selector, Uniform, Weighted


class First(Selector):
    def __call__(self, state, round, pool):
        return list(range(pool.clients_per_round))


def test_ours_are_registered_under_their_names():
    assert all(SELECTORS[cls.name] is cls for cls in (RoundRobin, Uniform, Weighted))


def test_by_default_there_is_nothing_to_check_and_nothing_to_remember():
    selector = First()
    selector.check(3, 3)
    assert selector.init(3) == ()
    assert selector.observe((), 0, [0, 1], {0: {"steps": 5.0}}) == ()
