"""The package as it is installed: what an import loads, and what the wheel holds."""

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
import tomllib
import traceback
import venv
import zipfile
from functools import cache
from importlib import import_module
from pathlib import Path
from runpy import run_path

import pytest
from hatchling.builders.wheel import WheelBuilder
from torch import nn

ROOT = Path(__file__).parents[1]
HEAVY = {"lightning", "pytorch_lightning", "sklearn", "scipy", "pandas", "pyarrow", "numba"}
HEAVY |= {"torchmetrics", "matplotlib", "jsonargparse", "transformers", "sentence_transformers"}
HEAVY |= {"jinja2", "optuna", "shap"}


# A process takes these steps, and each asks what is loaded after it, with that of those before.
STEPS = {
    "nothing": "import ltr",
    "extras": "import ltr.integrations",
    "torch": "import ltr.operators, ltr.losses, ltr.kernels.table",
    "comparisons": "from ltr.metrics import join, holm",
    "boosting": "import ltr.boosting",
    "readers": "from ltr.datasets import read_letor, ListDataset, Standardize",
    "functions": "from ltr.metrics import functional, named; import ltr.reports",
    "evaluate": (
        "from ltr.cli import main\n"
        "open('a.run', 'w').write('1 Q0 d 1 1.0 t\\n')\n"
        "open('qrels', 'w').write('1 0 d 1\\n')\n"
        "with redirect_stdout(sys.stderr):\n"
        "    assert main(['evaluate', 'a.run', '--qrels', 'qrels']) == 0"
    ),
    "estimators": "import ltr.estimators",
    "a fit": (
        "import numpy as np\n"
        "X = np.random.default_rng(0).normal(size=(200, 3))\n"
        "ranker = ltr.estimators.NeuralRanker(members=1, max_epochs=2, verbose=0)\n"
        "ranker.fit(X, X[:, 0] > 0, qid=np.arange(200) // 10).predict(X)"
    ),
    "commands": (
        "import pandas as pd\n"
        "table = pd.DataFrame(X, columns=['a', 'b', 'c'])\n"
        "table['qid'], table['label'] = np.arange(200) // 10, (X[:, 0] > 0).astype(int)\n"
        "table.assign(score=X[:, 0]).to_csv('t.csv', index=False)\n"
        "ranker.fit(table[['a', 'b', 'c']], table['label'], qid=table['qid']).save('model')\n"
        "with redirect_stdout(sys.stderr):\n"
        "    assert main(['evaluate', 't.csv']) == 0\n"
        "    given = ['a.run', 'a.run', '--qrels', 'qrels', '--method', 'combsum']\n"
        "    assert main(['fuse', *given, '--output', 'b.run']) == 0\n"
        "    assert main(['predict', 'model', 't.csv', '--output', 'p.csv']) == 0\n"
        "    assert main(['test', 'model', 't.csv', '--qid', 'qid', '--label', 'label']) == 0"
    ),
    "metrics": "from ltr.metrics import NDCG",
}
# A copy of the process after the step "torch" takes these.
ENGINE_STEPS = {
    "numba": "import numba",
    "a loop": (
        "import torch; from ltr.losses import SoftNDCG\n"
        "s = torch.randn(2, 900, requires_grad=True); SoftNDCG()(s, torch.ones(2, 900)).backward()"
    ),
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The top-level modules after each of the steps."""
    modules = "' '.join({m.partition('.')[0] for m in sys.modules})"
    code = {
        n: f"{c}\nprint({n!r}, {modules}, sep='\\t', flush=True)\n"
        for n, c in (STEPS | ENGINE_STEPS).items()
    }
    engine = "".join(code.pop(name) for name in ENGINE_STEPS)
    code["torch"] += (
        "if not (child := os.fork()):\n"
        f"{textwrap.indent(engine, '    ')}"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    start = "import os, sys; from contextlib import redirect_stdout\n"
    result = subprocess.run(
        [sys.executable, "-c", start + "".join(code.values())],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path_factory.mktemp("steps"),
    )
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    return {name: {*found.split()} for name, found in lines}


def test_import_ltr_loads_not_even_torch(loaded):
    assert not loaded["nothing"] & (HEAVY | {"torch", "numpy"})


def test_import_integrations_loads_no_library_of_an_extra(loaded):
    assert not loaded["extras"] & HEAVY


def test_import_losses_loads_torch_and_nothing_heavier(loaded):
    assert "torch" in loaded["torch"]
    assert not loaded["torch"] & (HEAVY | {"scipy"})


def test_comparisons_and_boosting_load_no_library_of_theirs(loaded):
    heavy = {"numba", "sklearn", "pandas", "lightning", "torchmetrics", "matplotlib"}
    assert not loaded["boosting"] & (heavy | {"pytrec_eval", "lightgbm", "xgboost"})


def test_a_loss_in_a_plain_training_loop_loads_numba_alone(loaded):
    # numba is the compiled engine, loaded at the first kernel sum, with what it loads itself
    assert loaded["a loop"] & HEAVY == loaded["numba"] & HEAVY


def test_evaluate_loads_neither_lightning_nor_pandas(loaded):
    heavy = {"lightning", "pytorch_lightning", "pandas", "sklearn", "jsonargparse"}
    assert not loaded["evaluate"] & heavy


def test_readers_and_metrics_do_not_load_lightning(loaded):
    heavy = {"lightning", "pytorch_lightning", "sklearn", "scipy", "jsonargparse"}
    assert not loaded["readers"] & (heavy | {"torchmetrics"})
    assert not loaded["functions"] & {*heavy, "torchmetrics", "numba", "pandas", "pytrec_eval"}


def test_the_arithmetic_of_metrics_needs_neither_torchmetrics_nor_lightning(loaded):
    heavy = {"lightning", "pytorch_lightning", "lightning_fabric", "torchmetrics"}
    for step in ("functions", "evaluate", "estimators", "a fit", "commands"):
        assert not loaded[step] & heavy, step
    # torch's compiler, which takes longer to import than the rest of torch, needs sympy
    assert "sympy" not in loaded["functions"] | loaded["evaluate"]
    assert "torchmetrics" in loaded["metrics"]
    assert not loaded["metrics"] & (heavy - {"torchmetrics"})


def test_a_fit_of_an_estimator_loads_neither_lightning_nor_numba(loaded):
    heavy = {"lightning", "pytorch_lightning", "numba"}
    assert not loaded["estimators"] & heavy
    assert not loaded["a fit"] & heavy


@cache
def texts() -> dict[str, str]:
    """The sources of ltr, by module."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): (
            path.read_text(encoding="utf-8")
        )
        for path in ROOT.glob("ltr/**/*.py")
    }


@cache
def parsed(text: str) -> ast.Module:
    """The tree of a source, which several tests read."""
    return ast.parse(text)


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[>=<;~! ]", x, maxsplit=1)[0].lower() for x in requirements}


def test_every_import_is_declared_and_every_dependency_imported():
    imported = set()
    for text in texts().values():
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add((node.module or "").partition(".")[0])
    imported -= set(sys.stdlib_module_names) | {"ltr"}
    imported -= {"mpmath"}  # for who fits the table of exponential sums again
    known = {"sklearn": "scikit-learn", "yaml": "pyyaml", "prometheus_client": "prometheus-client"}
    known |= {"sentence_transformers": "sentence-transformers", "pydantic_core": "pydantic-core"}
    known["typing_extensions"] = "typing-extensions"
    declared = project()["project"]
    extras = declared["optional-dependencies"]
    used = [x for extra in {*extras} - {"baselines", "docs", "dev"} for x in extras[extra]]
    imported = {known.get(name, name) for name in imported}
    assert imported <= names(declared["dependencies"] + used)
    assert names(declared["dependencies"]) <= imported


def test_metrics_have_no_hidden_state():
    for path in [*ROOT.glob("ltr/metrics/**/*.py"), *ROOT.glob("ltr/reports/**/*.py")]:
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"threading\.local|\bweakref\b|\brandbits\b", text), path


LIBRARIES = {"torch", "numba", "llvmlite", "lightning", "lightning_fabric", "pytorch_lightning"}
LIBRARIES |= {"torchmetrics", "jsonargparse", "transformers", "sentence_transformers"}
HEAVY |= {"jinja2", "optuna", "shap"}

# names without an underscore that their libraries promise nobody
INTERNAL = r"(^|\.)_(?!_)|^llvmlite\b|^numba\.core\b|^torch\.fx\.experimental\b"

EXCEPTIONS = {
    # A permutation is a node with tensors and plain numbers. torch's public way to make one,
    # `torch.export.register_dataclass`, makes leaves of the numbers, which `vmap` refuses.
    ("ltr.operators.permutation", "torch.utils._pytree.register_pytree_node"),
    # scikit-learn shows its trees of histograms in no public way. The export compares the scores
    # of what it reads with those of `predict`, so a change there is an error, not another score.
    ("ltr.export.trees", "_baseline_prediction"),
    ("ltr.export.trees", "_predictors"),
    # numba's manual describes this module for applications. Nothing else tells before a call
    # whether it compiles, and so whether the user has to wait.
    ("ltr.kernels.cpu.jit", "numba.core.event"),
    ("ltr.kernels.cpu.jit", "numba.core.event.Event"),
    ("ltr.kernels.cpu.jit", "numba.core.event.Listener"),
    ("ltr.kernels.cpu.jit", "numba.core.event.install_listener"),
    # torchmetrics' guide for authors of metrics says to write `plot` with it.
    ("ltr.metrics.base", "RankingMetric._plot"),
}


def root_of(node: ast.expr) -> str | None:
    """The name that a chain of attributes begins with, if it is one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def private_names(text: str) -> set[str]:
    """The private names of other libraries in a source: imports, and what it reads of modules."""
    tree, found = parsed(text), set()
    known: dict[str, str] = {one: one for one in LIBRARIES}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES:
            names = {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            ours = [one for one in node.names if one.name.split(".")[0] in LIBRARIES]
            names = {one.asname: one.name for one in ours if one.asname}
            found |= {one.name for one in ours}
        else:
            continue
        known |= names
        found |= {*names.values()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and root_of(node) in known:
            first, _, rest = ast.unparse(node).partition(".")
            found |= {f"{known[first]}.{rest}"} if first in known else set()
    return {name for name in found if re.search(INTERNAL, name)}


def name_of(node: ast.expr) -> str:
    """The last name of what is called."""
    return getattr(node, "attr", getattr(node, "id", ""))


def undefined_names(sources: dict[str, str]) -> set[tuple[str, str]]:
    """The private attributes and names for `getattr` that no source defines, with the module."""
    defined, used = {"_replace", "_asdict"}, set()  # two of namedtuple's, which are public
    for name, text in sources.items():
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                defined.add(node.id)
            elif isinstance(node, ast.Attribute):
                own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                if own and isinstance(node.ctx, ast.Store):
                    defined.add(node.attr)
                used.add((name, node.attr))
            elif isinstance(node, ast.Call) and name_of(node.func).endswith("attr"):
                strings = [one.value for one in node.args if isinstance(one, ast.Constant)]
                used |= {(name, one) for one in strings if isinstance(one, str)}
    return {one for one in used if re.match("_(?!_)", one[1]) and one[1] not in defined}


def inherited_names(kind: type, source: ast.AST) -> set[str]:
    """The private names of other libraries' classes that a subclass overrides or uses."""
    theirs = set()
    for base in kind.__mro__:
        if base.__module__.split(".")[0] in LIBRARIES:
            theirs |= {*vars(base), *vars(base).get("__annotations__", {})}
    nodes = [*ast.walk(source)]
    ours = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    ours |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return {f"{kind.__name__}.{name}" for name in ours & theirs if re.match("_(?!_)", name)}


def test_private_names_of_other_libraries_are_exceptions():
    found = {(name, one) for name, text in texts().items() for one in private_names(text)}
    for name, text in texts().items():
        if name.endswith("__main__"):
            continue
        module = vars(import_module(name))
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.ClassDef) and node.name in module:
                found |= {(name, one) for one in inherited_names(module[node.name], node)}
    known = {one.rpartition(".")[2] for _, one in found}
    found |= {one for one in undefined_names(texts()) if one[1] not in known}
    assert found == EXCEPTIONS


@pytest.mark.parametrize(
    "text",
    [
        "from jsonargparse._core import ArgumentParser",
        "from jsonargparse import _typehints as t",
        "import jsonargparse as j\nj._core.x()",
        "import torch.nn\ntorch._C.x",
        "from torch import nn\nnn._reduction",
        "import torch._dynamo as d",
        "from numba.core import types",
        "import numba\nnumba.core.types",
        "from llvmlite import ir",
        "import llvmlite.ir as ir",
        "from torch.fx.experimental.proxy_tensor import get_proxy_mode",
    ],
)
def test_private_names_are_found(text: str):
    assert private_names(text)


def test_public_names_are_not():
    text = "import torch\nfrom jsonargparse import ArgumentParser\nfrom numba import config\n"
    assert not private_names(text + "torch.__version__\ndef f(self): return self._x")


def test_private_attributes_and_methods_are_found():
    class Own(nn.Module):
        def _load_from_state_dict(self, *args):
            return self._buffers

    source = ast.parse(textwrap.dedent(inspect.getsource(Own)))
    assert inherited_names(Own, source) == {"Own._load_from_state_dict", "Own._buffers"}
    text = "f._dynamo_x = 1\ngetattr(f, '_y')\nself._z = 2\nf._z"
    assert undefined_names({"a": text}) == {("a", "_dynamo_x"), ("a", "_y")}


def test_extras_are_what_code_uses_and_the_groups_are_the_extras():
    content = project()
    extras = content["project"]["optional-dependencies"]
    features = {"convert", "explain", "ray", "report", "serve", "text", "tune"}
    assert set(extras) == {*features, "baselines", "export", "plots", "docs", "dev"}
    for extra in features:
        assert set(extras[extra]) <= set(extras["dev"])
    assert "lightgbm" in (ROOT / "benchmarks" / "estimators.py").read_text(encoding="utf-8")
    for group, requirements in content["dependency-groups"].items():
        assert requirements == [f"{content['project']['name']}[plots,{group}]"]
        assert group in extras


def test_messages_name_the_distribution_that_is_ours():
    files = [*ROOT.glob("ltr/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    wrong = [p for p in files if re.search(r"(?<![\w-])ltr\[", p.read_text(encoding="utf-8"))]
    assert not wrong


def test_oldest_versions_are_pyprojects_lower_bounds():
    command = [sys.executable, ROOT / "tools" / "oldest.py"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = dict(line.split("==") for line in result.stdout.splitlines())
    declared = project()["project"]
    assert names(declared["dependencies"]) <= set(lines)
    assert f"torch>={lines['torch']}" in declared["dependencies"]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"pytest=={lines['pytest']}" in pins


@pytest.mark.parametrize(
    ("module", "wrong", "right"),
    [
        ("losses", "ListNET", "ListNet"),
        ("losses", "Propensity_Weights", "inverse_propensity_weights"),
        ("operators", "Softsort", "SoftSort"),
        ("operators", "soft_Rank", "soft_rank"),
        ("datasets", "TabelDataModule", "TableDataModule"),
        ("models", "MlpScorer", "MLPScorer"),
    ],
)
def test_a_wrong_name_brings_the_nearest_right_one(module: str, wrong: str, right: str):
    words = rf"^module 'ltr\.{module}' has no attribute '{wrong}': did you mean '{right}'\?$"
    with pytest.raises(AttributeError, match=words):
        getattr(import_module(f"ltr.{module}"), wrong)


@pytest.mark.parametrize("name", ["xyzxyz", "__wrapped__", "_ListNet"])
def test_a_name_like_none_brings_no_other(name: str):
    with pytest.raises(AttributeError, match=rf"^module 'ltr.losses' has no attribute '{name}'$"):
        getattr(import_module("ltr.losses"), name)
    with pytest.raises(ImportError, match=f"cannot import name '{name}'"):
        exec(f"from ltr.losses import {name}")


def test_python_adds_no_second_suggestion():
    with pytest.raises(AttributeError) as error:
        import_module("ltr.losses").ListNET  # noqa: B018
    said = "".join(traceback.format_exception(error.value)).strip()
    assert said.endswith("has no attribute 'ListNET': did you mean 'ListNet'?")


def built(folder: Path) -> Path:
    """The wheel as `make wheel` builds it."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


def test_the_same_files_give_the_same_wheel(wheel: Path, tmp_path: Path):
    [again] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    assert Path(again).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize("name", ["install.md", "production.md"])
def test_the_wheel_has_the_name_that_the_page_installs(wheel: Path, name: str):
    page = (ROOT / "docs" / name).read_text("utf-8")
    assert set(re.findall(r"ltr_torch-[\w.]+?-py3-none-any\.whl", page)) == {wheel.name}


def test_the_wheel_holds_ltr_alone_with_its_recipes(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"ltr"}
    folders = {name.split("/")[2] for name in names if name.startswith("ltr/recipes/")}
    assert folders == {"__init__.py", "digits", "letor", "table"}
    of_recipes = {
        name for name in names if name.startswith("ltr/recipes/") and name.count("/") == 3
    }
    files = {"config.yaml", "smoke.yaml", "README.md"}  # and not what they gave
    assert of_recipes == {
        f"ltr/recipes/{name}/{file}" for name in folders - {"__init__.py"} for file in files
    }
    assert not [name for name in names if "papers" in name or "/bench" in name]
    others = {name for name in names if name.startswith("ltr/") and not name.endswith(".py")}
    assert {name for name in others if "/recipes/" not in name} == {
        "ltr/kernels/table.json",
        "ltr/reports/report.html",
        "ltr/py.typed",
    }


def test_ltr_imports_nothing_of_the_recipes():
    for module, text in texts().items():
        for node in ast.walk(parsed(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            tops = {name.partition(".")[0] for name in names}
            assert not tops & {"recipes", "examples", "benchmarks"}, module


def test_an_unpacked_wheel_runs_without_the_checkout(wheel: Path, tmp_path: Path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "unpacked")
    code = "import sys; sys.path.insert(0, 'unpacked'); from ltr.cli import main; main(['recipes'])"
    # the recipes are listed with the standard library alone, so no dependency is needed here
    command = [sys.executable, "-I", "-S", "-c", code]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "digits" in result.stdout
    assert "letor" in result.stdout


@pytest.mark.slow  # makes an environment; the test above runs the same files
def test_the_wheel_installs_the_command(wheel: Path, tmp_path: Path):
    venv.create(tmp_path / "env")
    pip = [sys.executable, "-m", "pip", "--python", tmp_path / "env"]
    install = [*pip, "install", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    command = [tmp_path / "env" / "bin" / "ltr", "recipes"]
    result = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "digits" in result.stdout
    assert "letor" in result.stdout


def test_no_file_name_begins_with_an_underscore():
    files = [path.name for path in (ROOT / "ltr").rglob("*.py")]
    assert "lists.py" in files
    assert [name for name in files if name.startswith("_") and not name.startswith("__")] == []


def imports_of(name: str, tree: ast.Module, modules: set[str]) -> set[str]:
    """The modules of ltr that a module imports, also in functions, but not for types alone."""
    found, rest = set(), [*tree.body]
    while rest:
        node = rest.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            rest += node.orelse
            continue
        rest += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {one if one in modules else str(node.module) for one in names}
    return (found & modules) - {name}


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The sets of modules of which each imports each other, in some steps."""

    def reached(start: str) -> set[str]:
        found, rest = set(), [start]
        while rest:
            new = graph[rest.pop()] - found
            found |= new
            rest += new
        return found

    everywhere = {name: reached(name) for name in graph}
    return {
        frozenset(other for other in there if name in everywhere[other])
        for name, there in everywhere.items()
        if name in there
    }


def test_circles_are_found():
    modules = {"a", "b", "c", "d"}
    text = "if TYPE_CHECKING:\n    import d\ndef late():\n    from b import x"
    graph = {"a": imports_of("a", ast.parse(text), modules), "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert graph["a"] == {"b"}
    assert circles(graph) == {frozenset("abc")}


def test_imports_make_no_circle():
    modules = {*texts()}
    graph = {name: imports_of(name, parsed(text), modules) for name, text in texts().items()}
    assert "ltr.losses.base" in graph["ltr.losses.softmax"]
    assert circles(graph) == set()


def test_the_api_in_one_page_of_text():
    content = run_path(str(ROOT / "docs" / "llms.py"))
    assert content["PAGE"].read_text() == content["page"]()  # else: python docs/llms.py


def test_no_empty_line_divides_a_table():
    wrong = []
    pages = (ROOT / folder for folder in ("docs", "ltr", "recipes"))
    for page in [*ROOT.glob("*.md"), *(page for folder in pages for page in folder.rglob("*.md"))]:
        lines = [*page.read_text(encoding="utf-8").split("\n"), ""]
        fence = False
        for i, line in enumerate(lines[:-1]):
            fence ^= line.lstrip().startswith("```")
            begins = line.startswith("|") and not lines[i - 1].startswith("|") and not fence
            if begins and set(lines[i + 1]) - set("|:- "):
                wrong.append(f"{page.relative_to(ROOT)}:{i + 1}: {line}")
    assert not wrong


def test_one_file_names_the_address_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    address = project["urls"]["Repository"]
    listed = subprocess.run(
        ["git", "grep", "-lF", address], cwd=ROOT, capture_output=True, text=True
    )
    assert listed.stdout.split() == ["pyproject.toml"]


def test_the_long_description_has_absolute_links(wheel: Path):
    files = zipfile.ZipFile(wheel)
    [name] = [one for one in files.namelist() if one.endswith("METADATA")]
    text = files.read(name).decode().partition("\n\n")[2]
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 3
    assert all(re.match("https?:", one) for one in links)
    assert "<!--" not in text


@pytest.mark.slow  # each process imports ltr for itself, as it must
@pytest.mark.parametrize("module", ["kernels/sorting", "cli/errors", "cli/predict"])
def test_the_doctests_of_a_module_pass_alone(module: str):
    """They register operators, look for a class by its name, and have a function called `test`."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"ltr/{module}.py"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
