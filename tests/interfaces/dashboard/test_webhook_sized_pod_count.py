"""The webhook's status on the health page."""

import re
from dataclasses import replace

import pytest

from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.domain.resources import ResourceName
from tests.interfaces.dashboard.test_pages import browser
from tests.interfaces.http.api_scene import make_busy_scene

KEPT = ObservedRisk(0.07, 0.4, 1000, 50)
BROKEN = ObservedRisk(0.01, 1.5, 1000, 40)


async def rows(risks):
    scene = await make_busy_scene()
    assert scene.done is not None
    scene.done = replace(scene.done, observed_risks=risks)
    async with browser(scene) as page:
        text = (await page.get("/health")).text
    return [re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", row)).strip() for row in re.findall("<tr><td>.*?</tr>", text)]


async def test_a_stated_risk_is_shown_with_what_became_of_it():
    found = await rows({ResourceName.CPU: KEPT, ResourceName.MEMORY: BROKEN})
    assert "CPU 7.00 % 5.00 % 1,000 0.40 within" in found
    [memory] = [row for row in found if row.startswith("Memory")]
    assert memory.startswith("Memory 1.00 % 4.00 % 1,000 1.50 above")
    assert "Nodes keep more" in memory


@pytest.mark.parametrize(
    ("short", "word"),
    [(126, "above"), (71, "above"), (70, "within"), (35, "within"), (34, "unspent"), (0, "unspent")],
)
async def test_a_kept_risk_is_called_what_it_is(short, word):
    [cpu] = [
        row for row in await rows({ResourceName.CPU: replace(KEPT, intervals_short=short)}) if row.startswith("CPU")
    ]
    assert cpu.split(" 0.40 ")[1].startswith(word)


async def test_without_any_sample_nothing_is_judged():
    [cpu] = [
        row
        for row in await rows({ResourceName.CPU: replace(KEPT, intervals=0, intervals_short=0)})
        if row.startswith("CPU")
    ]
    assert cpu == "CPU 7.00 % – 0 0.40 There are too few intervals for a comparison."


async def test_a_model_without_a_risk_has_no_such_table():
    assert not [row for row in await rows({}) if row.startswith(("CPU", "Memory"))]
