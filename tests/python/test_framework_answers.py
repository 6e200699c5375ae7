"""Decisions of well-known programs fall in a dry run as they do in a real one."""

from types import SimpleNamespace

import torch

from stalloc._frameworks.framework_answers import _agrees_with_other_ranks, _routed


def test_tokens_are_routed_as_random_logits_would_route_them():
    torch.manual_seed(0)
    counts = torch.stack([_routed(200, 2, 8, 3) for _ in range(500)])
    assert counts.shape == (500, 3, 8)
    assert (counts.sum(2) == 400).all(), "each token goes to two experts"
    spread = counts.double().var(0).mean()
    assert 0.9 < spread / (200 * 0.25 * 0.75) < 1.1, "each expert is as likely, and no token goes to one twice"
    assert (_routed(7, 5, 5, 2) == 7).all(), "all experts: each gets every token"


def test_the_same_seed_routes_the_same_way_as_recomputation_must():
    torch.manual_seed(3)
    first, second = _routed(50, 2, 8, 1), _routed(50, 2, 8, 1)
    torch.manual_seed(3)
    assert (_routed(50, 2, 8, 1) == first).all() and (first != second).any()


def test_lists_that_the_first_rank_did_not_send_are_taken_to_agree():
    asked = []

    def compare(numbers):
        asked.append(numbers)
        raise RuntimeError("disagreement between rank0 and rank1")

    utils = SimpleNamespace(assert_ints_same_as_other_ranks=compare)
    _agrees_with_other_ranks(utils)
    utils.assert_ints_same_as_other_ranks([1, 2])
    assert asked == [[1, 2]], "what it asks of the device is asked"
