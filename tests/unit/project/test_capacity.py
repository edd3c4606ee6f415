"""The figures of docs/capacity.md and docs/preemption.md follow from what they are computed from."""
import math
import re

import pytest
import yaml
from paths import TOP

CAPACITY = (TOP / "docs/capacity.md").read_text()
EXAMPLE = CAPACITY.split("\n## A worked example: 200 nodes\n")[1].split("\n## ")[0]
INTERVALS = (TOP / "docs/preemption.md").read_text().split("\n## The interval between images\n")[1].split("\n## ")[0]
DEFAULTS = yaml.safe_load((TOP / "roles/checkpoint_hooks/defaults/main.yml").read_text())
DAY = 86400


def read_rows(text):
    """Return the cells (list of str) of each row of a text's tables, by the first of them."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}


ROWS = read_rows(EXAMPLE)
GIVEN = {symbol: int(value) for symbol, value in re.findall(r"^\| .* \| `(\w)` \| (\d+)\b.* \|$", EXAMPLE, re.MULTILINE)}


def link(gigabits):
    """Return what a link carries at most, in GiB/s."""
    return gigabits * 1e9 / 8 / 2 ** 30


def young(frozen, between):
    return math.sqrt(2 * frozen * between)


def daly(frozen, between):
    return young(frozen, between) * (1 + math.sqrt(frozen / (2 * between)) / 3 + frozen / (18 * between)) - frozen


N, J, M_DAYS = GIVEN["N"], GIVEN["J"], GIVEN["M"]
SIZE, DEPTH, RESERVE = GIVEN["m"], GIVEN["d"], GIVEN["r"]
BETWEEN = M_DAYS * DAY
FROZEN = SIZE / link(10)
MINUTES = 180


def test_given():
    assert sorted(GIVEN) == sorted("NJmdrM")
    assert DEFAULTS["checkpoint_hooks_depth"] == DEPTH
    assert DEFAULTS["checkpoint_hooks_reserve"] == "%dG" % RESERVE
    assert "10^10 / 8 / 2^30 = %.3f GiB/s" % link(10) in EXAMPLE
    assert "= %d s" % BETWEEN in EXAMPLE


@pytest.mark.parametrize("what, result", [
    ("jobs", "%d" % (N * J)),
    ("one image of each job", "%d GiB" % (N * J * SIZE)),
    ("shared store", "%d GiB = %.1f TiB" % (N * J * SIZE * (DEPTH + 1) + RESERVE, (N * J * SIZE * (DEPTH + 1) + RESERVE) / 1024)),
    ("quota of a user with 20 jobs at a time", "{0:.0f} GiB (`checkpoint_store_quota: {0:.0f}G`)".format(20 * SIZE * (DEPTH + 1))),
    ("private directory of a node, if restarts copy or decompress memory, and all its jobs restart at once", "%d GiB" % (J * SIZE)),
    ("with a store on each node: on the node", "%d GiB" % (J * SIZE * (DEPTH + 1) + RESERVE)),
    ("with a store on each node: on the server", "%d GiB = %.2f TiB" % (N * J * SIZE * DEPTH, N * J * SIZE * DEPTH / 1024)),
    ("a job is frozen for one image", "%.2f s" % FROZEN),
    ("interval, Young", "%.0f s = %.1f min" % (young(FROZEN, BETWEEN), young(FROZEN, BETWEEN) / 60)),
    ("interval, Daly", "%.0f s = %.1f min" % (daly(FROZEN, BETWEEN), daly(FROZEN, BETWEEN) / 60)),
    ("interval to request, in minutes of walltime", "{0} (`qsub -c enabled,periodic,interval={0}`)".format(MINUTES)),
    ("share of its time for which a job is frozen", "%.4f %%" % (100 * FROZEN / (60 * MINUTES))),
    ("share of its time that a job loses to failures: half an interval for each", "%.4f %%" % (100 * 30 * MINUTES / BETWEEN)),
    ("a node of the cluster fails every", "%.0f h" % (BETWEEN / N / 3600)),
    ("work lost then", "%.0f h of jobs" % (J * MINUTES / 2 / 60)),
])
def test_result(what, result):
    assert ROWS[what][-1] == result


def test_interval_is_the_formulas_rounded():
    assert abs(young(FROZEN, BETWEEN) / 60 - MINUTES) < 5


@pytest.mark.parametrize("gigabits", [10, 25, 100])
def test_load_of_the_store(gigabits):
    rate, images = link(gigabits), N * J * SIZE
    load = images / (60 * MINUTES)
    assert ROWS["%d Gbit/s" % gigabits] == ["%.3f GiB/s" % rate, "%.1f min" % (images / rate / 60), "%.0f %%" % (100 * load / rate)]
    assert "%d GiB in %d min = %.3f GiB/s" % (images, MINUTES, load) in EXAMPLE


def test_space_of_a_hundred_jobs():
    depth = DEFAULTS["checkpoint_hooks_depth"]
    assert "default depth of %d need 100 x 16 GiB x %d = %.1f TiB" % (depth, depth + 1, 100 * 16 * (depth + 1) / 1024) in CAPACITY


@pytest.mark.parametrize("image, frozen", [("0.7 MiB", 0.04), ("259 MiB", 0.35), ("30 GiB on a store that takes 1 GiB per second", 30)])
def test_intervals_between_images(image, frozen):
    minutes = [young(frozen, days * DAY) / 60 for days in (10, 100)]
    rounded = [round(value, -1 if value > 200 else None) for value in minutes]
    assert read_rows(INTERVALS)[image] == ["%g s" % frozen] + ["%d min" % value for value in rounded]


def test_refinement_of_the_formula():
    assert round(young(30, 10 * DAY) - daly(30, 10 * DAY)) == 20
    assert round(100 * (1 - daly(1, 1000) / young(1, 1000)), 1) == 1.5
