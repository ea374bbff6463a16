# SPDX-License-Identifier: Apache-2.0
"""metrics_parse.py METRICS DASHBOARD DOCUMENT: checks metrics with Prometheus's library, and what asks for them.

Every name in the expressions of the dashboard and of the document's alerts must be a sample's, and the document must
list every family.
"""
import json
import re
import sys

from prometheus_client.parser import text_string_to_metric_families

metrics_file, dashboard_file, document_file = sys.argv[1:]
families = list(text_string_to_metric_families(open(metrics_file).read()))
names = [family.name for family in families]
assert len(set(names)) == len(names), "a family is written twice"


def check_histogram(family):
    assert family.name.endswith("_seconds"), family.name
    for request in {sample.labels.get("request") for sample in family.samples}:
        own = [sample for sample in family.samples if sample.labels.get("request") == request]
        counts = [sample.value for sample in own if sample.name.endswith("_bucket")]
        bounds = [float(sample.labels["le"]) for sample in own if sample.name.endswith("_bucket")]
        assert counts == sorted(counts) and bounds == sorted(bounds) and bounds[-1] == float("inf"), own
        assert [sample.value for sample in own if sample.name.endswith("_count")] == [counts[-1]], own
        assert any(sample.name.endswith("_sum") for sample in own), own


for family in families:
    assert re.fullmatch("paged_[a-z_]+[a-z]", family.name), family.name
    assert family.type in ("counter", "gauge", "histogram"), family
    assert family.documentation.endswith("."), family
    labels = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
    assert len(set(labels)) == len(labels), f"{family.name}: a sample is written twice"
    for sample in family.samples:
        assert sample.value >= 0, sample
        assert family.type != "counter" or sample.name == family.name + "_total", sample
    if family.type == "histogram":
        check_histogram(family)

samples = {sample.name for family in families for sample in family.samples}


def check_expression(expression, where):
    used = set(re.findall(r"\bpaged_[a-z_]+", expression))
    assert used and used <= samples, f"{where}: {used - samples or 'no metric'} in {expression}"


def expressions(value):
    """The expressions in a dashboard, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("expr", "query") and isinstance(inner, str):
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


dashboard = json.load(open(dashboard_file))
asked = [expression for expression in expressions(dashboard) if "paged_" in expression]
assert len(asked) >= 10 and len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
for expression in asked:
    check_expression(expression, dashboard_file)

document = open(document_file).read()
alerts = re.findall(r"^ *expr: (.*)$", document, re.M)
assert alerts
for expression in alerts:
    check_expression(expression, document_file)
for family in families:
    name = family.name + ("_total" if family.type == "counter" else "")
    assert f"`{name}" in document, f"{document_file} does not list {name}"
print(f"{len(families)} families; {len(asked)} expressions of the dashboard, {len(alerts)} alerts")
