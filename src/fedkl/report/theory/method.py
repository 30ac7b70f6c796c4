"""What the page on theory says about how its numbers are made."""

from __future__ import annotations

from fedkl.report.theory.claims import THRESHOLD
from fedkl.tabular import studies
from fedkl.tabular.sampling import ACTIONS, AGENTS, GAMMAS, STATES
from fedkl.tabular.studies import Studies


def drawn(families: int) -> str:
    """How many families, in words."""
    return "1 random family" if families == 1 else f"{families:,} random families"


def method(
    families: int, seed: int, found: Studies, versions: dict[str, str]
) -> list[tuple[str, str]]:
    """Terms and their definitions."""
    sizes = found.sizes
    last = ", ".join(f"{name} {rounds}" for name, rounds in sizes.rounds.items())
    ceilings = " and ".join(
        f"{100 * i.of_ceiling.min():.0f} to {100 * i.of_ceiling.max():.0f} % of the way there "
        f"where agents {i.setting.words}"
        for i in found.improvements
    )
    return [
        (
            "Families",
            f"Claims are checked on {drawn(families)}, numbered by their seeds from {seed} on: "
            f"{AGENTS[0]} to {AGENTS[-1]} agents, {STATES[0]} to {STATES[-1]} states, {ACTIONS[0]} "
            f"to {ACTIONS[-1]} actions, gamma from {GAMMAS[0]:g} to {GAMMAS[-1]:g}. "
            "Agents differ in the initial distribution (mu), the "
            "dynamics (P), the rewards (R), all of them or nothing, slightly or entirely; dynamics "
            "range from close to deterministic to close to uniform; some rewards are tied; the "
            "weights of the agents are equal or random.",
        ),
        (
            "Cases",
            "Twenty for each family: uniform, random, nearly deterministic and sparse policies, "
            "and from each a step that is random, greedy, harmful, within a radius, or in one "
            "state only, of any length from a thousandth to the whole way. A check is a case for "
            "each agent, where the claim says anything about it.",
        ),
        (
            "Tolerance",
            "All quantities are solved for, not sampled, in double precision. A violation among "
            "returns must exceed 10⁻¹² (max |R| + max |V|) / (1 \N{MINUS SIGN} gamma), which is "
            "more than rounding can make up. That nothing was violated proves nothing; the proofs "
            "are in docs/theory.md.",
        ),
        (
            "Vacuous",
            "A claim that promises an improvement is called vacuous if it holds and, at "
            f"every gamma ≥ {THRESHOLD} of these cases, even the policy that is best for "
            "its bound is promised none. Maximising such a bound means to stay where one is.",
        ),
        (
            "Who moves",
            f"{sizes.movement_families} random families of {studies.AGENTS} agents, "
            f"{studies.STATES} states and {studies.ACTIONS} actions, each with a random policy, "
            f"the same at {len(sizes.gammas)} discounts. An agent moves if the policy that "
            "maximises its local objective, found in closed form, is not the one it has. "
            "second-order-exact has one objective for all agents, so there a family moves or not.",
        ),
        (
            "Possible improvement",
            f"{sizes.improvement_families} random families of the same size at gamma = "
            f"{studies.GAMMA:g}, from the uniform policy. One policy has to serve all agents, and "
            "the best one is no MDP's, so the best known is taken: the best of line searches from "
            "many starts (uniform, every agent's own best policy, that of the averaged MDP, and "
            "random ones), and of switching single actions from there. Nothing can exceed the "
            "ceiling, the return if every agent played its own best policy; the best known comes "
            f"{ceilings}. The rest is what one policy for "
            "all cannot have, or what the search did not find.",
        ),
        (
            "Rounds",
            f"As many as it takes to see where an algorithm leads: {last}.",
        ),
        (
            "Slopes",
            f"{sizes.slope_families} families as those that claims are checked on, one random "
            f"policy each; {found.slopes.left_out} agents whose B_n, A_n or their sum is zero are "
            "left out.",
        ),
        (
            "Versions",
            ", ".join(f"{package} {version}" for package, version in versions.items()) + ".",
        ),
    ]
