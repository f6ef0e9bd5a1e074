"""Each method and option of the Rust contracts has a counterpart in Python, and each method a twin for asyncio."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import larder
from larder import toolkit

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "kernel/src/storage").exists())
KERNEL = ROOT / "kernel/src/storage"
BINDING = ROOT / "bindings/python/src"
PACKAGE = Path(larder.__file__).parent

CONTRACTS = {
    "history": ("history", larder.History),
    "vector": ("vectors", larder.Vectors),
    "graph": ("graph", larder.Graph),
    "blob": ("blobs", larder.Blobs),
    "task": ("tasks", larder.Tasks),
    "key_value": ("key_value", larder.KeyValue),
}

# A method of a contract, and the method that the binding calls instead because it returns or accepts more.
INSTEAD = {
    ("key_value", "list"): "list_entries",
    ("blob", "get"): "get_range",
    ("blob", "head"): "info",
    ("graph", "upsert_entities"): "write_entities",
    ("graph", "upsert_relationships"): "write_relationships",
    ("graph", "get_entities"): "get_stored_entities",
    ("graph", "get_relationships"): "get_stored_relationships",
    ("graph", "delete_entity"): "delete",
}


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_binding_calls_each_method_of_a_contract(contract):
    trait = (KERNEL / f"{contract}.rs").read_text()
    methods = re.findall(r"^    async fn (\w+)", trait, re.MULTILINE)
    assert len(methods) > 9
    source = (BINDING / f"{CONTRACTS[contract][0]}.rs").read_text()
    called = set(re.findall(r"(?:provider\(\)|(?<!self\.)\bhandle|cypher)\s*\.(?!provider\()(\w+)\(", source))
    missing = [name for name in methods if INSTEAD.get((contract, name), name) not in called]
    assert not missing, f"bindings/python/src/{CONTRACTS[contract][0]}.rs has no call of {missing}"


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_binding_has_each_option_of_a_request(contract):
    name = CONTRACTS[contract][0]
    types = "".join(file.read_text() for file in (KERNEL / contract).glob("*.rs"))
    destructured = re.findall(r"let Self \{([^}]*)\} = self;\s+OptionSet", types)
    fields = {field.split(":")[0].strip() for fields in destructured for field in fields.split(",")} - {""}
    assert fields
    files = [BINDING / f"{name}.rs", *PACKAGE.glob(f"_{name}*.py")]
    known = set(re.findall(r"[a-z_]+", "".join(file.read_text() for file in files).replace("with_", "")))
    assert fields <= known, f"the binding does not have {sorted(fields - known)}"


def test_the_package_calls_each_method_of_the_binding():
    text = "".join(file.read_text() for file in PACKAGE.glob("*.py"))
    called = set(re.findall(r"(?:_native|native|events|call|step|reply|listening)\.(\w+)\(", text))
    for node in ast.parse((PACKAGE / "_native.pyi").read_text()).body:
        if isinstance(node, ast.ClassDef):
            methods = {method.name for method in node.body if isinstance(method, ast.FunctionDef)}
            unused = methods - called - {"__new__"}
            assert not unused, f"the package does not call {sorted(unused)} of `{node.name}`"


TOOLKIT = [toolkit.AgentContext, toolkit.CompactionAgent, toolkit.Pipeline]


@pytest.mark.parametrize("handle", [*(handle for _, handle in CONTRACTS.values()), larder.Stores, *TOOLKIT])
def test_each_method_has_a_twin_with_the_same_parameters(handle):
    public = {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(handle, inspect.isfunction)
        if not name.startswith("_")
    }
    methods = [name for name in public if not (name.startswith("a") and name[1:] in public)]
    assert methods
    for name in methods:
        assert f"a{name}" in public, f"{handle.__name__}.{name} has no twin"
        assert public[f"a{name}"].parameters == public[name].parameters, name
