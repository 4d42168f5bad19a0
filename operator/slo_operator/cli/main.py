"""`slo`, also `kubectl slo`: what the operator sees and does, from the status of its resources.

Exit codes: 0 fine, 1 the answer is no (an SLO is missed), 2 bad input or no answer.
Libraries are imported when a command runs, so that --help and mistakes answer at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

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
"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; building it imports nothing heavy."""
    parser = argparse.ArgumentParser(
        prog="slo",
        description="Shows what the InferenceSLO operator sees, concludes and does.",
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
    return parser


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
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:
        message = f"{text!r}: a number of seconds from 1 to 3600"
        raise argparse.ArgumentTypeError(message)
    return seconds


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        message = f"{text!r}: a whole number from 1"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code. argparse itself ends with 2 on a wrong command line."""
    options = build_parser().parse_args(arguments)

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
