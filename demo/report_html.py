"""report.html: the run as a page that needs nothing but itself."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

from demo import charts, series
from demo.goals import SLO_MS, Figures, Result, levers_used, mean_of
from demo.report_json import report
from demo.run_data import Run, Stage, WindowName
from demo.summary import shown

STAGE_CLASSES = {
    Stage.FORWARD: "s-forward",
    Stage.FORWARD_WAIT: "s-forward-wait",
    Stage.PREPROCESS: "s-preprocess",
    Stage.PREPROCESS_WAIT: "s-preprocess-wait",
    Stage.POSTPROCESS: "s-postprocess",
    Stage.OTHER: "s-other",
}
_ASSETS = Path(__file__).resolve().parent / "assets"


def write_reports(run: Run, found: Figures, judged: Sequence[Result], verdict: str, folder: Path) -> None:
    """report.json and report.html into a folder that exists."""
    document = report(run, found, judged, verdict)
    (folder / "report.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (folder / "report.html").write_text(page(run, found, judged, verdict), encoding="utf-8")


def page(run: Run, found: Figures, judged: Sequence[Result], verdict: str) -> str:
    """The whole page."""
    begin = series.zero(run)
    seconds = max((record.scheduled for record in run.records), default=begin + 60) - begin
    sections = [
        _hero(run, found, judged, verdict),
        _section("Latency and traffic", _latency_note(), _latency_chart(run, begin, seconds)),
        _section("Where a request spends its time", _stage_note(), _stage_chart(run, begin, seconds)),
        _section("GPU and CPU use", _gpu_note(found), _gpu_chart(run, begin, seconds)),
        _section("Goals", "", _goals(judged)),
        _section("Decisions", _decision_note(run), _decisions(run, begin)),
        _section("How to read this", "", _honesty(run)),
    ]
    style = (_ASSETS / "report.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>InferenceSLO demo report</title><style>{style}</style></head>"
        f"<body><main>{''.join(sections)}</main></body></html>\n"
    )


def _section(title: str, note: str, body: str) -> str:
    told = f'<p class="note">{note}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{told}{body}</section>"


def _hero(run: Run, found: Figures, judged: Sequence[Result], verdict: str) -> str:
    met = all(one.met for one in judged) and not run.unfinished
    count = sum(one.met for one in judged)
    badge = f"{count} of {len(judged)} goals hold" if not met else f"all {len(judged)} goals hold"
    when = time.strftime("%-d %B %Y, %H:%M UTC", time.gmtime(run.started))
    cards = "".join(
        _card(run, name, words, found[f"{name.value}.p99_ms"])
        for name, words in (
            (WindowName.BASELINE, "as found"),
            (WindowName.TUNED, "repaired"),
            (WindowName.DOUBLED, "twice the traffic"),
        )
    )
    problem = "" if met else f'<p class="problem">{escape(verdict)}</p>'
    return (
        f'<header><p class="eyebrow">InferenceSLO demo · {escape(run.scenario)} · {when}</p>'
        f"<h1>{_headline(found)}</h1>"
        f'<p class="badge {"good" if met else "bad"}">{"✓" if met else "✗"} {badge}</p>{problem}'
        f'<div class="cards">{cards}</div></header>'
    )


def _headline(found: Figures) -> str:
    before, after, doubled = (found[f"{name.value}.p99_ms"] for name in WindowName)
    if isinstance(before, float) and isinstance(after, float):
        text = f"p99 from {before:,.0f} to {after:,.0f} ms"
        if isinstance(doubled, float):
            text += f", and {doubled:,.0f} ms at twice the traffic"
        gpus = found["doubled.gpus"]
        return text + (f", on the same {shown(gpus)} GPUs" if gpus else "")
    return "The run broke off before there was anything to compare"


def _card(run: Run, name: WindowName, words: str, p99: float | str | None) -> str:
    window = run.windows.get(name)
    if window is None or not isinstance(p99, float):
        return (
            f'<div class="card"><h3>{words}</h3><p class="big">–</p><p class="small">not measured</p></div>'
        )
    count = sum(window.start <= record.scheduled < window.end for record in run.records)
    busy = mean_of(run.samples, window, lambda sample: sample.gpu_busy)
    cpu = mean_of(run.samples, window, lambda sample: sample.cpu)
    shares = "".join(
        f" · {what} {share:.0%}" for what, share in (("GPUs", busy), ("their CPU", cpu)) if share is not None
    )
    css = "good" if p99 <= SLO_MS else "bad"
    which = "all variants" if name is WindowName.BASELINE else "worst variant"
    return (
        f'<div class="card"><h3>{words}</h3><p class="big {css}">{p99:,.0f}<span> ms</span></p>'
        f'<p class="small">p99, {which}<br>{count / window.seconds:.1f} requests/s{shares}</p></div>'
    )


def _latency_chart(run: Run, begin: float, seconds: float) -> str:
    x = charts.time_axis(seconds)
    pins = series.pins(run, begin)
    rows = max(charts.pin_rows(pins, x), default=-1) + 1
    top = charts.BAND_STRIP + 6 + rows * charts.PIN_ROW
    points = series.p99_over_time(run.records, begin)
    variants = [
        series.p99_over_time(run.records, begin, model) for model in sorted({r.model for r in run.records})
    ]
    highest = charts.nice_top([value for line in (points, *variants) for _, value in line], 400)
    y = charts.Axis(0, min(highest, 3000), top + 260, top)
    rate = series.rate_over_time(run.records, begin)
    below = charts.Axis(0, charts.nice_top([value for _, value in rate], 10), top + 380, top + 300)
    body = [
        charts.band_shapes(series.bands(run, begin), x, top, below.start),
        charts.grid(y, 6, "ms"),
        charts.grid(below, 2, "/s"),
        charts.area(rate, x, below, "rate"),
        *(charts.polyline(line, x, y, "variant") for line in variants),
        charts.polyline(points, x, y, "p99"),
        charts.level(SLO_MS, y, f"SLO: p99 ≤ {SLO_MS:.0f} ms"),
        charts.marks(series.failures(run, begin), x, y, "failure"),
        *(
            charts.moment(at - begin, x, top, below.start, words)
            for at, words in ((run.auto_at, "Auto"), (run.step_at, "traffic × 2"))
            if at is not None
        ),
        charts.pin_shapes(pins, x, top, below.start),
        charts.minutes(x, below.start),
    ]
    keys = {"p99": "p99 of the last 20 s, all variants", "variant": "each variant", "rate": "requests/s"}
    words = "p99 latency over time with the SLO, and the rate of arrivals below; figures are in the tables."
    return charts.svg("Latency and traffic", words, below.start + 26, body) + charts.legend(keys)


def _stage_chart(run: Run, begin: float, seconds: float) -> str:
    x = charts.time_axis(seconds)
    found = series.stages_over_time(run, begin)
    totals = [sum(values) for values in zip(*([v for _, v in p] for p in found.values()), strict=True)]
    y = charts.Axis(0, charts.nice_top(totals, 200), 264, 28)
    body = [
        charts.band_shapes(series.bands(run, begin), x, 28, 264),
        charts.grid(y, 4, "ms"),
        charts.stacked({css: found[stage] for stage, css in STAGE_CLASSES.items()}, x, y),
        charts.minutes(x, 264),
    ]
    keys = {css: stage.value for stage, css in STAGE_CLASSES.items()}
    return charts.svg("Latency breakdown", _stage_note(), 290, body) + charts.legend(keys)


def _gpu_chart(run: Run, begin: float, seconds: float) -> str:
    x, y = charts.time_axis(seconds), charts.Axis(0, 100, 160, 28)
    points = series.percent_over_time(run, begin, lambda sample: sample.gpu_busy)
    cpu = series.percent_over_time(run, begin, lambda sample: sample.cpu)
    body = [
        charts.band_shapes(series.bands(run, begin), x, 28, 160),
        charts.grid(y, 4, "%"),
        charts.area(points, x, y, "gpu"),
        charts.polyline(points, x, y, "gpu-line"),
        charts.polyline(cpu, x, y, "cpu-line"),
        charts.minutes(x, 160),
    ]
    keys = {"gpu-line": "GPUs busy", "cpu-line": "CPU of their pods, share of the limit"}
    return charts.svg("GPU and CPU use", "Shares in percent over time.", 186, body) + charts.legend(keys)


def _goals(judged: Sequence[Result]) -> str:
    rows = "".join(
        f"<tr><td>{escape(one.goal.says)}<br><code>{escape(one.goal.key)}</code></td>"
        f'<td class="num">{escape(one.goal.wanted)}</td><td class="num">{escape(shown(one.measured))}</td>'
        f'<td class="{"good" if one.met else "bad"}">{"✓ met" if one.met else "✗ missed"}</td></tr>'
        for one in judged
    )
    head = '<th scope="col">goal</th><th scope="col" class="num">must be</th>'
    head += '<th scope="col" class="num">measured</th><th scope="col">result</th>'
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _decisions(run: Run, begin: float) -> str:
    rows = "".join(
        f'<tr><td><span class="number">{number}</span></td><td class="num">{_clock(decision.time - begin)}</td>'
        f"<td><strong>{escape(decision.reason)}</strong><br>{escape(decision.lever or '')}</td>"
        f"<td>{escape(decision.message)}</td></tr>"
        for number, decision in enumerate(run.decisions, start=1)
    )
    head = '<th scope="col">#</th><th scope="col" class="num">time</th>'
    head += '<th scope="col">decision</th><th scope="col">why, with the numbers</th>'
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _honesty(run: Run) -> str:
    text = (_ASSETS / "honesty.html").read_text("utf-8")
    machine = run.machine
    probe, sends = (
        ", ".join(f"{name} {late:g} ms" for name, late in seen.items()) or "not measured"
        for seen in (machine.probe_p99_ms, machine.send_p99_ms)
    )
    repeated = ", ".join(name.value for name, window in run.windows.items() if window.repeated) or "none"
    source = "published to Prometheus" if run.gateway_histogram else "not published in this run"
    facts = {
        "machine": f"{machine.cores} cores, {machine.memory_gib:g} GiB, Linux {machine.kernel}",
        "a sleeping probe woke up late by (p99)": probe,
        "requests left the gateway late by (p99)": sends,
        "phases repeated because of noise": repeated,
        "requests sent": f"{len(run.records):,}",
        "the gateway's latency histogram": source,
    }
    items = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items())
    return f"{text}<dl>{items}</dl>"


def _latency_note() -> str:
    return (
        "Measured by the client, from the time at which a request was due. Shaded: the windows whose figures count. "
        "Numbers are decisions, listed below."
    )


def _stage_note() -> str:
    return "Mean over all requests of the last 20 s. Waiting is time in a queue; the forward pass alone needs the GPU."


def _gpu_note(found: Figures) -> str:
    outside = found["diagnosis.outside_gpu_ms"]
    if isinstance(outside, float):
        return (
            f"As found, {outside:,.0f} ms of the p99 were outside the forward pass: "
            "a faster GPU would not have helped."
        )
    return ""


def _decision_note(run: Run) -> str:
    used = levers_used(run.decisions)
    return f"Levers kept, in order: {' → '.join(map(escape, used))}." if used else "No lever was kept."


def _clock(seconds: float) -> str:
    sign = "−" if seconds < 0 else ""
    return f"{sign}{int(abs(seconds)) // 60}:{int(abs(seconds)) % 60:02d}"
