"""An alert on a metric that nobody publishes never fires, and looks like good news."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from slo_operator.health import Metrics

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "manifests" / "monitoring" / "base" / "rules" / "inferenceslo.yml"
#: the operator's own families; names with a colon are recording rules
FAMILY = re.compile(r"\binferenceslo_[a-z_]+\b(?!:)")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_every_family_that_a_rule_reads_is_published_by_the_operator() -> None:
    published = set()
    for family in Metrics().registry.collect():
        published |= {family.name, *(f"{family.name}_{part}" for part in ("total", "bucket", "sum", "count"))}
    read = {name for rule in rules() for name in FAMILY.findall(rule["expr"])}
    assert read, "the rules read nothing of the operator's"
    assert read <= published


def test_every_recording_that_a_rule_reads_is_recorded() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    read = {name for rule in rules() for name in re.findall(r"\binferenceslo:[a-z0-9_:]+", rule["expr"])}
    assert read <= recorded


def test_every_alert_is_explained_in_the_operations_page() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    missing = [rule["alert"] for rule in rules() if "alert" in rule and f"`{rule['alert']}`" not in page]
    assert missing == []
