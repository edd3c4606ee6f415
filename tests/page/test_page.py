"""The pages of the reports in Chromium: at two widths, light and dark, everything is there, can be read and reached by keyboard."""
import base64
import copy
import os
import pathlib
import sys

import pytest
from selenium import webdriver

TOP = pathlib.Path(__file__).resolve().parents[2]
SHOTS = TOP / ".cache/test/page"
sys.path[:0] = [str(TOP / ".cache/collections"), os.path.dirname(__file__)]

from ansible_collections.ckpt.torque.plugins.filter import plan  # noqa: E402
from ansible_collections.ckpt.torque.plugins.plugin_utils import validation_files  # noqa: E402
from samples import IMAGES, PLAN, SAMPLES, failures  # noqa: E402

SIZES = [(1280, 900), (390, 844)]
SHOWN = """
const shown = element => element.checkVisibility({contentVisibilityAuto: true, visibilityProperty: true})
    && [...element.getClientRects()].some(box => box.width && box.height);
const own = element => [...element.childNodes].some(node => node.nodeType == 3 && node.textContent.trim());
const texts = [...document.body.querySelectorAll("*")].filter(element => own(element) && shown(element));
"""
CONTRAST = SHOWN + """
const parts = color => color.match(/[\\d.]+/g).map(Number);
const light = color => color.slice(0, 3).map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
const ground = element => { for (; element; element = element.parentElement) {
    const color = parts(getComputedStyle(element).backgroundColor); if (color.length == 3 || color[3] == 1) return color; }
    throw new Error("no background"); };
return texts.map(element => { const both = [parts(getComputedStyle(element).color), ground(element)].map(light).sort((a, b) => b - a);
    return [(both[0] + 0.05) / (both[1] + 0.05), element.textContent.trim().slice(0, 40)]; });
"""
OVERLAPS = SHOWN + """
const boxes = [];
for (const element of texts) for (const node of element.childNodes) if (node.nodeType == 3 && node.textContent.trim()) {
    const range = document.createRange(); range.selectNode(node);
    let clip = element.closest(".scroll"); clip = clip ? clip.getBoundingClientRect() : {left: 0, right: 1e9};
    for (const box of range.getClientRects()) if (box.right > clip.left && box.left < clip.right)
        boxes.push([box.left, box.top + 3, box.right, box.bottom - 3, node.textContent.trim().slice(0, 40)]); }
boxes.sort((a, b) => a[1] - b[1]);
const found = [];
for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length && boxes[j][1] < boxes[i][3]; j++)
    if (boxes[i][0] + 1 < boxes[j][2] && boxes[j][0] + 1 < boxes[i][2]) found.push([boxes[i][4], boxes[j][4]]);
return [boxes.length, found];
"""
CONTROLS = SHOWN + """return [...document.querySelectorAll("a, summary, .scroll")]
    .filter(element => shown(element) && (!element.matches(".scroll") || element.scrollWidth > element.clientWidth))
    .map(element => element.textContent.trim());"""


@pytest.fixture(scope="session")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    yield driver
    driver.quit()


def write(directory, results, nodes, version="0.3.0", day=25, images=()):
    document = validation_files.build_document(results, nodes, "2026-11-%02dT04:20:14Z" % day, version, images)
    validation_files.write_report(document, str(directory), "site", False)
    return document


@pytest.fixture(scope="session", params=SAMPLES)
def sample(request, tmp_path_factory):
    """Name, directory and document of a report with some history."""
    directory = tmp_path_factory.mktemp(request.param)
    results, nodes = SAMPLES[request.param]()
    if request.param in ("good", "failures"):
        before = copy.deepcopy(results)
        for result in before:
            result.update({"passed": True, "cause": ""}, engine={"name": "criu", "version": "4.1"})
        for day in range(19, 25):
            write(directory, before, nodes, "0.2.0", day)
    return request.param, directory, write(directory, results, nodes, images=IMAGES if request.param in ("good", "failures") else ())


@pytest.fixture(params=[(size, scheme) for size in SIZES for scheme in ("light", "dark")], ids=lambda view: "%d-%s" % (view[0][0], view[1]))
def show(request, browser):
    """Have the browser show a file in a view, and keep a screenshot of it by a name, as far as the window shows it or whole."""
    (width, height), scheme = request.param
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.get_log("browser")

    def show_file(path, name, whole=True):
        browser.get(path.as_uri())
        SHOTS.mkdir(parents=True, exist_ok=True)
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        (SHOTS / ("%s-%d-%s.png" % (name, width, scheme))).write_bytes(base64.b64decode(shot["data"]))

    return show_file


@pytest.fixture
def page(browser, show, sample):
    """The browser with a sample's page, and the sample."""
    show(sample[1] / "report.html", sample[0], sample[0] != "many")
    return (browser,) + sample


def check_text(browser):
    """Check that all text can be read."""
    assert browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    ratios = browser.execute_script(CONTRAST)
    assert len(ratios) > 20 and [entry for entry in ratios if entry[0] < 4.5] == []
    count, overlaps = browser.execute_script(OVERLAPS)
    assert count > 20 and overlaps == []
    assert browser.get_log("browser") == []


def check_keyboard(browser):
    """Check that the keyboard reaches each control; return their number."""
    wanted, reached = browser.execute_script(CONTROLS), []
    for _control in wanted:
        browser.switch_to.active_element.send_keys("\ue004")
        reached.append(browser.execute_script("return document.activeElement.textContent.trim()"))
        assert browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert reached == wanted
    return len(wanted)


def test_page_can_be_read(page):
    browser, name, _directory, document = page
    assert browser.title == document["verdict"]
    assert browser.find_element("id", "verdict").text.split("\n")[-1] == document["verdict"]
    tops = [element.location["y"] for element in browser.find_elements("css selector", "#verdict, h2")]
    assert tops == sorted(tops) and [element.get_attribute("id") for element in browser.find_elements("css selector", "h2")] == (
        ["failures"] * (name in ("failures", "many")) + ["unproven", "nodes", "times"]
        + ["images"] * (name in ("good", "failures")) + ["history"])
    assert len(browser.find_elements("css selector", ".matrix tbody tr")) == len(document["nodes"])
    check_text(browser)


def test_keyboard_reaches_each_control(page):
    assert check_keyboard(page[0]) >= 4


def test_page_of_a_plan(browser, show, tmp_path):
    (tmp_path / "plan.html").write_text(plan.plan_page(PLAN, "10%"), encoding="utf-8")
    show(tmp_path / "plan.html", "plan")
    assert browser.title == browser.find_element("id", "verdict").text.split("\n")[-1]
    assert browser.title.startswith("30 of 60 nodes need something: node01, node03, ")
    assert [element.get_attribute("id") for element in browser.find_elements("css selector", "h2")] == ["needs", "nodes"]
    assert len(browser.find_elements("css selector", ".matrix tbody tr")) == len(PLAN)
    assert browser.find_elements("css selector", "script") == []
    check_text(browser)
    assert check_keyboard(browser) >= 1


def test_what_a_user_wrote_is_text(browser, tmp_path):
    write(tmp_path, *failures())
    browser.get((tmp_path / "report.html").as_uri())
    assert browser.title != "owned"
    assert browser.find_elements("css selector", "script") == []
    texts = [element.text for element in browser.find_elements("css selector", "dd")]
    assert any("<script>document.title = 'owned'</script>&" in text for text in texts), texts


def test_page_of_500_nodes_is_small(tmp_path):
    write(tmp_path, *SAMPLES["many"]())
    assert 100000 < (tmp_path / "report.html").stat().st_size < 2000000
