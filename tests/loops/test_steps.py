"""Steps from public questions and papers: derived, and equal to the loop; or refused, with the operation's name."""

from __future__ import annotations

from typing import Any

import pytest

import gpuscan as gs
from tests.loops import oracle
from tests.loops.public_steps import PUBLIC
from tests.loops.steps import CASES, REFUSALS, Case, inputs

INPUTS = inputs()


def arrays(case: Case) -> Any:
    names = case.inputs.split()
    return tuple(INPUTS[name] for name in names) if len(names) > 1 else INPUTS[names[0]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_step_is_derived_and_equals_its_loop(case: Case) -> None:
    xs = arrays(case)
    oracle.check_loop(case.step, case.init, xs, case.kind)


@pytest.mark.parametrize("case", PUBLIC, ids=lambda case: case.name)
def test_a_public_step_is_derived_in_stages(case: Case) -> None:
    xs = arrays(case)
    found = gs.loop(case.step, case.init, xs, device="numpy")
    assert found.form is not None
    kinds = [stage.kind for stage in found.form.stages if stage.law != "h[t] = b"]
    assert sorted(kinds) == sorted(case.kind.split()), str(found.form)
    oracle.check(found, oracle.run(case.step, case.init, xs))


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name.replace(" ", "-"))
def test_a_step_without_a_form_is_refused_with_the_name_of_the_operation(case: Case) -> None:
    with pytest.raises(gs.LoopError, match=case.kind) as caught:
        gs.loop_form(case.step, case.init, arrays(case))
    assert "steps.py" in str(caught.value)
    assert 'method="sequential"' in str(caught.value)
