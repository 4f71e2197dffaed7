"""Where classes may arrive at all, as far as what attracts them says: domains that none of the targets can be in."""

from dataclasses import replace

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.problem import Attraction, Problem, copies_of


def reachable(problem: Problem) -> Problem:
    """The same problem, in which classes are admitted to fewer nodes where attractions keep them from the others.

    It has the same packings: what is left out has no target in any of them.
    """
    attractions = problem.rules.attractions
    if not attractions:
        return problem
    running = copies_of(problem, problem.pod_node)
    surely = _surely_staying(problem, running)
    # What stays with all its pods arrives nowhere.
    arriving = surely < np.bincount(problem.pod_class, minlength=problem.class_count)
    admits = problem.admits[problem.sites] & arriving[:, None]
    while True:
        before = admits.copy()
        for rule in attractions:
            admits[rule.holder] &= _attracted(problem, rule, running, surely, admits)
        if (admits == before).all():
            break
    sites, rows = problem.sites.copy(), [problem.admits]
    for c in np.flatnonzero((admits != problem.admits[problem.sites]).any(axis=1)).tolist():
        sites[c] = sum(map(len, rows))
        rows.append(admits[c : c + 1])
    return replace(problem, sites=sites, admits=np.concatenate(rows))


def _surely_staying(problem: Problem, running: IntArray) -> IntArray:
    """How many copies of each class stay in every plan."""
    ran = running.sum(axis=1)
    leaving = np.where(problem.movable, ran, 0)
    for limit in problem.rules.eviction_limits:
        leaving[limit.members] = np.minimum(leaving[limit.members], limit.allowed)
    return np.asarray(ran - leaving)


def _attracted(problem: Problem, rule: Attraction, running: IntArray, surely: IntArray, admits: BoolArray) -> BoolArray:
    """The nodes that have domains, of all the topologies, that some target may be in before a holder arrives."""
    domains = problem.rules.topologies[list(rule.topologies)]
    found = (domains >= 0).all(axis=0)
    others = rule.targets
    if rule.may_be_first:
        counted = (domains >= 0).any(axis=0)
        everywhere = not running[np.ix_(rule.targets, ~counted)].any()
        if not (everywhere and surely[rule.targets].any()):
            return np.asarray(found)
        # As none is the first of all, holders alone do not bring each other.
        others = rule.targets[rule.targets != rule.holder]
    there = running[rule.targets].any(axis=0) | admits[others].any(axis=0)
    for row in domains:
        found &= np.isin(row, np.unique(row[there]))
    return np.asarray(found)
