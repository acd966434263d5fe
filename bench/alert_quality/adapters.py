"""Public scanners from PyPI behind the protocol of scanner.py, each by its own rules that need no service.

.scanner-venv/bin/python bench/alert_quality/adapters.py NAME < lists.ndjson

It runs on the Python of the scanners' environment, so it imports nothing of this project. What looks at single tools
looks at each distinct one once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

Tool = Mapping[str, Any]
Finding = dict[str, str]
ScanTool = Callable[[Tool], Iterator[Finding]]
ScanList = Callable[[Sequence[Tool]], list[Finding]]


def cisco() -> ScanList:
    """Search with Cisco's YARA rules, the description and the rest apart, as its scanner does with a live server."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # a library of its other analyzers asks the network on import
    from mcpscanner.core.analyzers.yara_analyzer import YaraAnalyzer

    analyzer = YaraAnalyzer()

    async def search(tool: Tool) -> list[Any]:
        rest = {name: value for name, value in tool.items() if name != "description"}
        found = [*await analyzer.analyze(tool.get("description") or ""), *await analyzer.analyze(json.dumps(rest))]
        return [(each.severity, each.details["raw_response"]["rule"]) for each in found]

    def scan(tool: Tool) -> Iterator[Finding]:
        for level, rule in asyncio.run(search(tool)):
            yield {"level": level.lower(), "rule": rule}

    return _each_once(scan)


def agent_threat_rules() -> ScanList:
    """Match the Agent Threat Rules that are meant for MCP."""
    from pyatr import AgentEvent, ATREngine

    everything, engine = ATREngine(), ATREngine()
    everything.load_default_rules()
    for rule in everything.rules:
        if rule.tags.get("scan_target") in ("mcp", "both"):
            engine.load_rule(rule)

    def scan(tool: Tool) -> Iterator[Finding]:
        fields = {"tool_name": str(tool.get("name")), "tool_description": str(tool.get("description") or "")}
        text = "\n".join(_strings(tool))
        for match in engine.evaluate(AgentEvent(content=text, event_type="tool_response", fields=fields)):
            level = "info" if match.severity == "informational" else match.severity
            yield {"level": level, "rule": match.rule_id}

    return _each_once(scan)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def sentinel() -> ScanList:
    """Run the heuristics of ``sentinel-scan mcp`` on a list."""
    from sentinel_scan import scan_mcp_manifest

    def scan(tools: Sequence[Tool]) -> list[Finding]:
        found = scan_mcp_manifest({"tools": list(tools)})["results"]
        return [{"tool": f["tool"], "level": f["severity"].lower(), "rule": f["heuristic"]} for f in found]

    return scan


def _each_once(scan: ScanTool) -> ScanList:
    known: dict[str, list[Finding]] = {}

    def scan_list(tools: Sequence[Tool]) -> list[Finding]:
        found = []
        for tool in tools:
            text = json.dumps(tool)
            if text not in known:
                known[text] = list(scan(tool))
            found += [{"tool": str(tool.get("name")), **each} for each in known[text]]
        return found

    return scan_list


ADAPTERS: Mapping[str, Callable[[], ScanList]] = {
    "cisco-ai-mcp-scanner": cisco,
    "pyatr": agent_threat_rules,
    "sentinel-scan-cli": sentinel,
}
"""By the name of the package."""


def main() -> None:
    """Answer each list that stands on the standard input."""
    package = sys.argv[1]
    scan = ADAPTERS[package]()
    for line in sys.stdin:
        findings = scan(json.loads(line)["tools"])
        print(json.dumps({"findings": findings, "version": version(package)}), flush=True)


if __name__ == "__main__":
    main()
