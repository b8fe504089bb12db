"""The JSON contract, as a schema, held against reports of all sorts."""

import json
from typing import Any

import pytest
from analysis.test_findings import ragged, reading
from analysis.test_run import training
from story import Story, clean

from xlaprof.analysis.findings import names
from xlaprof.analysis.model import SEVERITIES, Report
from xlaprof.analysis.run import Run
from xlaprof.pages.json import SCHEMA, text, to_json

NUMBER, STRING, COUNT = {"type": "number"}, {"type": "string"}, {"type": "integer", "minimum": 0}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def a_list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


CAUSES = a_list(an_object(cause=STRING, seconds=NUMBER))
CONTRACT = an_object(
    schema={"const": SCHEMA},
    run=an_object(
        path=STRING, host=STRING, pid=COUNT, wall_s=NUMBER, finished={"type": "boolean"}, notes=a_list(STRING)
    ),
    steps=an_object(
        count=COUNT,
        median_s={"type": ["number", "null"]},
        p95_s={"type": ["number", "null"]},
        first_s={"type": ["number", "null"]},
        by_name=a_list(an_object(name=STRING, count=COUNT, median_s=NUMBER, p95_s=NUMBER, first_s=NUMBER)),
    ),
    counters={
        "type": "object",
        "required": ["CompileTime", "ExecuteTime", "TransferFromDeviceTime"],
        "additionalProperties": {"type": "integer"},
    },
    scopes=a_list(an_object(name=STRING, count=COUNT, total_s=NUMBER, self_s=NUMBER)),
    idle=an_object(
        window_s=NUMBER,
        busy_s=NUMBER,
        idle_s=NUMBER,
        idle_ratio=NUMBER,
        causes=CAUSES,
        gaps=a_list(an_object(blame=CAUSES)),
    ),
    torch_tpu=an_object(
        batches=COUNT,
        cached=COUNT,
        failed=COUNT,
        compile_s=NUMBER,
        reasons=a_list(
            an_object(reason=STRING, what=STRING, count=COUNT, compile_s=NUMBER, places=a_list(an_object()))
        ),
        text=STRING,
    ),
    accounts=a_list(
        an_object(
            what=STRING,
            total_s=NUMBER,
            share=NUMBER,
            explained_s=NUMBER,
            findings=a_list(STRING),
            normal_s=NUMBER,
            reason=STRING,
            unexplained_s=NUMBER,
            text=STRING,
        )
    ),
    findings=a_list(
        an_object(
            id={"type": "string", "pattern": "^[0-9a-f]{12}$"},
            kind={"enum": list(names())},
            file=STRING,
            line=COUNT,
            operation=STRING,
            count=COUNT,
            cost_s=NUMBER,
            cause={"type": "string", "pattern": r"^[^\n]+\.$"},
            advice={"type": "string", "pattern": r"^[^\n]+\.$"},
            change={
                "anyOf": [{"type": "null"}, an_object(what=STRING, **{"from": STRING, "to": STRING})],
            },
            severity={"enum": list(SEVERITIES)},
        )
    ),
)


def check(value: Any, schema: dict[str, Any], path: str = "$") -> None:
    """As much of JSON Schema as the contract uses."""
    import re

    if "const" in schema:
        assert value == schema["const"], path
    if "enum" in schema:
        assert value in schema["enum"], path
    if "anyOf" in schema:
        errors = []
        for option in schema["anyOf"]:
            try:
                check(value, option, path)
                break
            except AssertionError as error:
                errors.append(error)
        else:
            raise AssertionError(f"{path}: none of the alternatives fits: {errors}")
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        known = {
            "object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool,
            "null": type(None),
        }  # fmt: skip
        assert any(isinstance(value, known[name]) for name in types), f"{path}: {value!r} is no {types}"
    if "minimum" in schema:
        assert value >= schema["minimum"], path
    if "pattern" in schema:
        assert re.search(schema["pattern"], value), f"{path}: {value!r}"
    for name in schema.get("required", ()):
        assert name in value, f"{path}.{name} is missing"
    for name, inner in schema.get("properties", {}).items():
        check(value[name], inner, f"{path}.{name}")
    if "additionalProperties" in schema:
        for name, inner_value in value.items():
            check(inner_value, schema["additionalProperties"], f"{path}.{name}")
    for number, item in enumerate(value if "items" in schema else ()):
        check(item, schema["items"], f"{path}[{number}]")


def wild() -> Story:
    """Names that hurt."""
    story = Story(file='we"ird\u2028\n[red]\ud800.py')
    barrier, eig = story.line(2, "\x1b[31mx = '\\'"), story.line(3, "[bold]y[/bold]")
    for _ in range(10):
        with story.step("[link=x]"), story.scope("\x00\x07"):
            story.fallback(eig, "aten::[/]", 3)
            story.barrier(barrier, 5, compile=1)
    return story


@pytest.mark.parametrize("story", [Story(), clean(), ragged(), reading(), training(), Story(header=False)])
def test_reports_keep_the_contract(story: Story) -> None:
    check(json.loads(text(to_json(story.report()))), CONTRACT)


def test_the_contract_is_one_that_can_be_broken() -> None:
    document = json.loads(text(to_json(ragged().report())))
    del document["findings"][0]["change"]
    with pytest.raises(AssertionError, match="change is missing"):
        check(document, CONTRACT)
    document["findings"][0]["change"] = {"what": "shape", "old": "a", "new": "b"}
    with pytest.raises(AssertionError, match="none of the alternatives"):
        check(document, CONTRACT)


def test_a_change_is_reported_as_from_and_to() -> None:
    (finding,) = to_json(ragged().report())["findings"]
    assert finding["change"] == {"what": "shape", "from": "i64[32,16]", "to": "i64[8,16]"}
    assert (finding["file"], finding["line"], finding["code"]) == ("train.py", 34, "x = x.to(device)")


def test_what_is_not_known_is_null() -> None:
    steps = to_json(Run().report())["steps"]
    assert (steps["count"], steps["median_s"], steps["name"]) == (0, None, None)


def test_strings_of_any_kind_come_through_as_json() -> None:
    document = json.loads(text(to_json(wild().report())))
    check(document, CONTRACT)
    assert document["scopes"][0]["name"] == "\x00\x07"


def test_clean_is_said() -> None:
    assert to_json(clean().report())["clean"] is True
    assert to_json(reading().report())["clean"] is False


def test_a_report_is_a_value() -> None:
    report = ragged().report()
    assert isinstance(report, Report)
    assert report == ragged().report()
