"""Steps of a script that marks none are found by its optimizers."""

import random
import warnings

import pytest
import torch

from stalloc._steps.step_detection import StepDetector


class Steps:
    """Notes what the detector says."""

    is_open = False

    def __init__(self):
        self.said = ""

    def begin(self):
        self.is_open = True
        self.said += "("

    def end(self):
        self.is_open = False
        self.said += ")"

    def extend(self):
        self.said += "]"


class Optimizer(torch.optim.Optimizer):
    """Changes nothing."""

    def __init__(self, model):
        super().__init__(model.parameters(), {})

    def step(self):
        pass


@pytest.fixture
def model():
    return torch.nn.Linear(2, 2)


@pytest.fixture
def steps():
    steps = Steps()
    detector = StepDetector(torch, steps)
    yield steps
    detector.stop()


def test_the_first_call_for_training_begins_a_step_and_each_step_of_the_optimizer_ends_one(model, steps):
    with torch.no_grad():
        model(torch.ones(2))
    model.eval()(torch.ones(2))
    assert steps.said == "", "nothing is being trained yet"
    model.train()(torch.ones(2))
    optimizer = Optimizer(model)
    optimizer.step()
    model(torch.ones(2))
    optimizer.step()
    assert steps.said == "()()("


def test_of_several_optimizers_the_first_makes_the_steps_until_another_steps_twice_without_it(model, steps):
    first, second = Optimizer(model), Optimizer(model)
    for _ in range(2):
        model(torch.ones(2))
        first.step()
        model(torch.ones(2))
        second.step()
    assert steps.said == "()()("
    second.step()
    assert steps.said == "()()()(", "the first has stopped"
    second.step()
    assert steps.said == "()()()()("


def test_of_optimizers_that_step_one_right_after_the_other_the_last_ends_the_step(model, steps):
    optimizers = [Optimizer(model) for _ in range(3)]
    for _ in range(3):
        model(torch.ones(2))
        for optimizer in optimizers:
            optimizer.step()
    assert steps.said == "()]]()()("


def test_the_steps_of_a_gan_are_those_of_its_critic_however_often_the_generator_steps(model, steps):
    critic, generator = Optimizer(model), Optimizer(model)
    for turn in range(6):
        for _ in range(3):
            model(torch.ones(2))
            critic.step()
        if turn % 2 == 0:
            model(torch.ones(2))
            generator.step()
    assert steps.said == 18 * "()" + "("


def test_optimizers_that_step_many_times_in_turn_all_make_steps(model, steps):
    """As in PPO, where the actor and then the critic make several epochs."""
    actor, critic = Optimizer(model), Optimizer(model)
    for epochs in (3, 5, 2):
        for optimizer in (actor, critic):
            for _ in range(epochs):
                model(torch.ones(2))
                optimizer.step()
    assert steps.said == 19 * "()" + "(", "the critic's first step alone was not known for one"


def test_tasks_that_take_turns_by_chance_all_make_steps(model, steps):
    optimizers = [Optimizer(model) for _ in range(3)]
    tasks = [0, 0, 1, 1, 2, 2, *(random.Random(3).randrange(3) for _ in range(40))]
    for task in tasks:
        model(torch.ones(2))
        optimizers[task].step()
    assert steps.said == (len(tasks) - 2) * "()" + "(", "all but the first step of the second and third task"


def test_a_pair_that_follows_a_first_stage_is_led_by_one_of_the_two(model, steps):
    stage, critic, generator = (Optimizer(model) for _ in range(3))
    for optimizer in (stage, stage, critic, generator, critic, generator, critic, generator):
        model(torch.ones(2))
        optimizer.step()
    assert steps.said == 4 * "()" + "("


def test_a_step_that_a_gradient_scaler_leaves_out_is_one_and_accumulation_makes_none(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    before = model.weight.detach().clone()
    for turn in range(4):
        for _ in range(2):
            loss = model(torch.ones(2)).sum() * (float("inf") if turn != 3 else 1.0)
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert torch.equal(model.weight, before) == (turn != 3), "the scaler leaves the first steps out"
    assert steps.said == 4 * "()" + "("


def test_steps_are_found_where_the_only_gradient_scaler_is_cudas(model, monkeypatch):
    monkeypatch.delattr(torch.amp, "GradScaler")  # as before PyTorch 2.3
    steps = Steps()
    detector = StepDetector(torch, steps)
    try:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.ones(2)).sum().backward()
            optimizer.step()
    finally:
        detector.stop()
    assert steps.said == 2 * "()" + "("


def test_what_is_called_between_the_first_two_steps_is_a_part_of_the_second(model, steps):
    optimizer = Optimizer(model)
    model(torch.ones(2))
    optimizer.step()
    with torch.no_grad():
        model.eval()(torch.ones(2))
    assert steps.said == "()("
    model.train()(torch.ones(2))
    optimizer.step()
    assert steps.said == "()()("


def test_where_no_module_is_called_the_optimizer_alone_makes_the_steps(model, steps):
    first, second = Optimizer(model), Optimizer(model)
    for _ in range(2):
        first.step()
        second.step()
    assert steps.said == "()()("


def test_where_modules_are_called_in_the_first_step_only_the_second_is_known_at_its_end(model, steps):
    optimizer = Optimizer(model)
    model(torch.ones(2))
    for _ in range(4):
        optimizer.step()
    assert steps.said == "()()()()("


def test_a_call_that_is_compiled_is_no_obstacle(model, steps):
    @torch.compile(backend="eager", fullgraph=True)
    def forward(rows):
        return model(rows)

    optimizer = Optimizer(model)
    for _ in range(3):
        forward(torch.ones(2))
        optimizer.step()
    assert steps.said == "()()()("


def test_a_compiled_model_is_not_warned_of_a_hook_that_is_not_its_own(model):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        detector = StepDetector(torch, Steps())
        torch.compile(model, backend="eager")(torch.ones(2))
        detector.stop()
    assert [str(warning.message) for warning in warned if "hooks" in str(warning.message)] == []


def test_a_script_that_marks_its_steps_is_left_alone(model):
    steps = Steps()
    StepDetector(torch, steps).stop()
    model(torch.ones(2))
    Optimizer(model).step()
    assert steps.said == ""
