"""`slo`, also `kubectl slo`: what the operator sees and does, from the status of its resources; and a diagnosis of any
Triton from two saved metrics pages or Prometheus.

Exit codes: 0 fine, 1 the answer is no (an SLO is missed), 2 bad input or no answer.
Libraries are imported when a command runs, so that --help and mistakes answer at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime

from slo_operator import __version__

OK, NO, BAD_INPUT = 0, 1, 2

_EPILOG = """\
exit codes:
  0   fine: no objective that was asked for is missed
  1   the answer is no: an objective is missed
  2   bad input, no such resource, or no answer from the cluster

examples:
  slo top                              every InferenceSLO of the namespace, worst first
  slo top -A --watch                   the whole cluster, again every 5 seconds
  slo explain assistant -n serving     where the time goes, what would help, what was done
  slo history serving/assistant        the decisions, in the order they were taken
  kubectl get islo assistant -o yaml | slo explain -f -

without a cluster and without the operator:
  curl -s HOST:8002/metrics >a.prom; sleep 60; curl -s HOST:8002/metrics >b.prom
  slo diagnose --before a.prom --after b.prom --seconds 60 --repository models --slo latency.p99=300ms
  slo diagnose --prometheus http://HOST:9090 --namespace serving --slo latency.p99=300ms
  slo lint models
"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; building it imports nothing heavy."""
    parser = argparse.ArgumentParser(
        prog="slo",
        description="Shows what the InferenceSLO operator sees, concludes and does; and diagnoses any Triton.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"slo {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    top = commands.add_parser(
        "top",
        parents=[_common()],
        help="one line per model: SLO, latency, bottleneck, GPUs",
        description="One line per client-facing model, the one furthest from its target first.",
    )
    top.add_argument("resource", nargs="?", help="NAME or NAMESPACE/NAME; all when left out")
    top.add_argument("-A", "--all-namespaces", action="store_true", help="resources of every namespace")
    top.add_argument(
        "-w",
        "--watch",
        nargs="?",
        type=_seconds,
        const=5.0,
        metavar="SECONDS",
        help="print again every SECONDS (5) until interrupted",
    )

    explain = commands.add_parser(
        "explain",
        parents=[_common()],
        help="one resource in full: breakdown, bottleneck, levers, settings, last decisions",
        description="Where the latency of one resource's models goes, what would help, and what was done.",
    )
    _resource(explain)
    explain.add_argument("-m", "--model", help="only this client-facing model")

    history = commands.add_parser(
        "history",
        parents=[_common()],
        help="the decisions of one resource with their reasons and numbers",
        description="The latest decisions of one resource (the operator keeps 20), oldest first.",
    )
    _resource(history)
    history.add_argument("-l", "--limit", type=_count, default=20, metavar="N", help="only the last N")

    _diagnose(commands)
    _lint(commands)
    return parser


def _diagnose(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    diagnose = commands.add_parser(
        "diagnose",
        help="where latency comes from and what to change first, from two metrics pages",
        description="Where the latency of a Triton comes from and what to change first. Needs no cluster: two metrics "
        "pages, some time apart, under the load that you want to know about; saved ones, or a URL to ask twice. "
        "Or what Prometheus has scraped from the servers of a namespace.",
    )
    pages = diagnose.add_argument_group("saved pages")
    pages.add_argument(
        "--before",
        action="append",
        default=[],
        metavar="FILE",
        help="the first page; again for each further pod",
    )
    pages.add_argument(
        "--after", action="append", default=[], metavar="FILE", help="the second page, in pairs"
    )
    pages.add_argument(
        "--seconds", type=_seconds, metavar="S", help="how much later the second page was taken"
    )
    live = diagnose.add_argument_group("pages of running servers")
    live.add_argument(
        "--url", action="append", default=[], help="http://HOST:8002/metrics; again for each further pod"
    )
    live.add_argument(
        "--window",
        type=_seconds,
        metavar="S",
        help="seconds between two looks; default: 60, of Prometheus what the operator would take",
    )
    prometheus = diagnose.add_argument_group("what Prometheus has scraped")
    prometheus.add_argument("--prometheus", metavar="URL", help="http://HOST:9090, together with --namespace")
    prometheus.add_argument("-n", "--namespace", help="where the servers run")
    prometheus.add_argument(
        "--at",
        type=_moment,
        metavar="TIME",
        help="look back from here, such as 2026-01-31T10:00:00Z; default: now",
    )
    prometheus.add_argument(
        "--config", metavar="FILE", help="the operator's configuration: its gatewayHistograms are read, too"
    )
    prometheus.add_argument("--token-file", metavar="FILE", help="a bearer token for Prometheus")
    diagnose.add_argument(
        "--slo",
        action="append",
        default=[],
        metavar="NAME=TARGET",
        help="an objective, such as latency.p99=300ms; NAME is latency.p50, p90, p95, p99 or mean; may be repeated",
    )
    diagnose.add_argument(
        "--repository", metavar="DIR", help="the model repository: settings and ensembles, for levers"
    )
    diagnose.add_argument(
        "--gpus", type=_gpus, metavar="N", help="GPUs of one pod; default: as Prometheus knows it, or 1"
    )
    diagnose.add_argument("--model", metavar="NAME", help="only this client-facing model")
    diagnose.add_argument(
        "-o", "--output", choices=("table", "json", "yaml"), default="table", help="default: table"
    )


def _lint(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    lint = commands.add_parser(
        "lint",
        help="what is wrong in config.pbtxt files and whole model repositories",
        description="Reads Triton's configurations and says what a server would refuse, and what does not do what it "
        "seems to. Changes nothing. Exit code 1 when there is an error.",
    )
    lint.add_argument("path", nargs="+", help="a config.pbtxt, a model's folder or a repository's")
    lint.add_argument(
        "--slo", action="append", default=[], metavar="NAME=TARGET", help="such as latency.p99=300ms"
    )
    lint.add_argument("--cpus", type=_amount, metavar="N", help="cores of one server")
    lint.add_argument("--shm", type=_amount, metavar="MIB", help="size of its /dev/shm")
    lint.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < 1e9:
        message = f"{text!r}: a number above 0"
        raise argparse.ArgumentTypeError(message)
    return amount


def _gpus(text: str) -> int:
    if not text.isdecimal() or int(text) > 64:
        message = f"{text!r}: a whole number from 0 to 64"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _resource(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "resource", nargs="?", help="NAME or NAMESPACE/NAME; not needed with --file of one resource"
    )


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-n", "--namespace", help="namespace; default: that of the kubeconfig's context")
    common.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "yaml"),
        default="table",
        help="form of the answer; default: table",
    )
    common.add_argument(
        "-f",
        "--file",
        help="read resources from a file that kubectl get -o yaml|json wrote (- is standard input), not from a cluster",
    )
    common.add_argument(
        "--kubeconfig", help="default: $KUBECONFIG, then ~/.kube/config, then the pod's own account"
    )
    common.add_argument("--context", help="a context of the kubeconfig; default: the current one")
    return common


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        message = f"{text!r}: a number of seconds from 1 to 3600"
        raise argparse.ArgumentTypeError(message)
    return seconds


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r}: a time such as 2026-01-31T10:00:00Z"
        raise argparse.ArgumentTypeError(message) from None
    # without a zone it is meant as the clock on the wall says
    return moment.timestamp()


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        message = f"{text!r}: a whole number from 1"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code. argparse itself ends with 2 on a wrong command line."""
    options = build_parser().parse_args(arguments)

    if options.command == "diagnose":
        from slo_operator.cli import diagnose

        return diagnose.run(options)
    if options.command == "lint":
        from slo_operator.cli import lint

        return lint.run(options)

    from slo_operator.cli.commands import run
    from slo_operator.cli.source import SourceError

    try:
        return run(options)
    except SourceError as error:
        print(f"slo: {error}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # `slo … | head` has seen enough
        sys.stderr.close()
        return OK
    except KeyboardInterrupt:
        return OK


if __name__ == "__main__":
    sys.exit(main())
