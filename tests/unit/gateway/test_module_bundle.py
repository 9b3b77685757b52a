"""The dashboard's modules as one script: in their order, each in a function of its own."""

import re

import pytest

from services.gateway.core.module_bundle import bundle
from services.gateway.routes.static_files import WEB

APP = """\
import { a, b as c } from "./lib/one.js";
import two from "./lib/two.js";
import { three } from "./vendor/three.js";
run(a, c, two, three);"""
ONE = """\
let kept = 1;
export const a = 1;
export function b() {}
export class D {}
export async function e() {
}"""
TWO = """\
import { a } from "./one.js";
const x = a;
export { x, x as y };
export { f as default } from "../vendor/three.js";"""
MODULES = {"app.js": APP, "lib/one.js": ONE, "lib/two.js": TWO, "lib/unused.js": "nobody();"}
WANTED = """\
import * as module2_three from "../vendor/three.js";
// lib/one.js
const module0_one = (() => {
let kept = 1;
const a = 1;
function b() {}
class D {}
async function e() {
}
return { a, b, D, e };
})();
// lib/two.js
const module1_two = (() => {
const { a } = module0_one;
const x = a;
return { x: x, y: x, default: module2_three.f };
})();
// app.js
const module3_app = (() => {
const { a, b: c } = module0_one;
const { default: two } = module1_two;
const { three } = module2_three;
run(a, c, two, three);
return {  };
})();
"""


def test_what_is_imported_stands_before_who_imports_it():
    found = bundle(MODULES, "app.js")
    assert re.sub(r"module\d+_", "module_", found) == re.sub(r"module\d+_", "module_", WANTED)
    names = re.findall(r"^(?:const|import \* as) (module\d+_\w+)", found, re.M)
    assert len(set(names)) == len(names) == 4


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('import * as all from "./lib/one.js";', r"app\.js, line 2: a form of import or export that is not known"),
        ("export default run;", "line 2"),
        ("export let changes = 1;", "line 2"),
        ('import "./lib/one.js";', "line 2"),
        ('import { a } from "./lib/back.js";', r"app\.js imports lib/back\.js imports app\.js: a circle"),
    ],
)
def test_a_form_that_it_does_not_know_and_a_circle_are_refused(text, told):
    modules = {**MODULES, "app.js": f"// first\n{text}", "lib/back.js": 'import { b } from "../app.js";'}
    with pytest.raises(ValueError, match=told):
        bundle(modules, "app.js")


def test_modules_that_name_files_are_one_folder_deep():
    """Such a name is looked up from where the script stands, which is one folder deep too."""
    for path in WEB.glob("*.js"):
        assert "import.meta" not in path.read_text(), path
        assert not re.search(r"^[^*]*\bimport\(", path.read_text(), re.M), path
    assert not list(WEB.glob("*/*/*.js"))
