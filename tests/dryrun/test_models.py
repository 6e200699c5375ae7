"""Real models, at their real size."""
import pytest

GIB = 1 << 30


def test_seven_billion_parameters_train_in_two_gibibytes_of_the_host(answer):
    seen = answer("llama", 32)
    assert 6.7e9 < seen["parameters"] < 6.8e9
    # Parameters, gradients and the two states of AdamW, two bytes each.
    assert seen["peak"] > 8 * seen["parameters"]
    assert seen["resident"] < 2 * GIB


@pytest.fixture(scope="module")
def small(answer):
    return answer("llama", 1)


def test_two_runs_make_the_same_requests_at_the_same_places(answer, small):
    again = answer("llama", 1)
    assert small["requests"][0] > 500
    assert small["requests"] == again["requests"]
    assert small["places"] == again["places"]


def test_expandable_segments_serve_the_same_program(answer, small):
    expandable = answer("llama", 1, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert small["peak"] == expandable["peak"]
    assert small["places"] != expandable["places"]
