"""`python -m demo`: the whole story on this machine, measured, with a report.

Exit codes: 0 all goals hold, 1 a goal was missed, 2 the demo could not run, 3 machine too noisy.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from rich.console import Console

from demo import setup, summary
from demo.gateway_client import GatewayClient
from demo.goals import figures, results
from demo.kube import Kube, KubectlError, Prometheus, connected
from demo.live import Display
from demo.phases import QUICK, MachineTooNoisyError, Plan, Progress, Story
from demo.probe import probing
from demo.report_html import write_reports
from demo.run_data import Machine, Run
from demo.watching import Watcher
from devcluster.cluster import Cluster
from devcluster.layout import REPOSITORY
from devcluster.shell import ClusterError

OUTPUT = REPOSITORY / "build" / "demo"
GOALS_HOLD, GOAL_MISSED, CANNOT_RUN, TOO_NOISY = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)  # 80 in a pipe is too few
    display = Display(console)
    cluster = Cluster(options.state)
    keep = options.keep or bool(cluster.status())
    try:
        return asyncio.run(_demo(cluster, display, options))
    except (setup.SetupError, ClusterError, KubectlError, aiohttp.ClientError, OSError) as error:
        console.print(f"demo: {error}", style="bold red", markup=False)
        return CANNOT_RUN
    except KeyboardInterrupt:
        return 130
    finally:
        if keep:
            console.print(summary.next_commands(cluster.layout.kubeconfig), markup=False, soft_wrap=True)
        else:
            cluster.down()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--scenario", choices=["job1"], default="job1", help="what is repaired (job1)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up and print what to try next")
    parser.add_argument(
        "--no-gateway-histogram", action="store_true", help="leave the operator without that source"
    )
    parser.add_argument(
        "--quick", action="store_true", help="shorter windows: to look at, not to prove anything"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the arrivals")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the report (build/demo)")
    parser.add_argument("--state", type=Path, help="the cluster's folder (build/devcluster)")
    return parser


async def _demo(cluster: Cluster, display: Display, options: argparse.Namespace) -> int:
    started = time.time()
    await asyncio.to_thread(options.output.mkdir, parents=True, exist_ok=True)
    kubectl = await setup.bring_up(cluster, display.say)
    await setup.install(kubectl, display.say)
    await setup.serve(kubectl, display.say, histogram=not options.no_gateway_histogram)
    async with connected(kubectl.kubeconfig) as (kube, session), probing() as probe:
        gateway = GatewayClient(session, f"http://{await pod_address(kube, setup.NAMESPACE, 'gateway')}:8080")
        prometheus = Prometheus(
            session, f"http://{await service_address(kube, 'monitoring', 'prometheus')}:9090"
        )
        watcher = Watcher(kube, prometheus, gateway, setup.NAMESPACE, setup.RESOURCE)
        plan = QUICK if options.quick else Plan(seed=options.seed)
        story = Story(plan, gateway, watcher, probe, lambda: setup.switch_to_auto(kubectl), display.say)
        code, unfinished = await _tell(story, display)
        run = _run(started, story.progress, watcher, gateway, options, unfinished)
        await setup.collect(kubectl, options.output)
    return _conclude(run, code, display, options.output)


async def _tell(story: Story, display: Display) -> tuple[int, str]:
    """Run the story under the live view; returns GOALS_HOLD, or the exit code and the reason for breaking off."""
    async with display.showing(story.watcher):
        watching = asyncio.create_task(story.watcher.keep_watching())
        telling = asyncio.create_task(story.run())
        try:
            await asyncio.wait({watching, telling}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                telling.cancel()
                watching.result()
            await telling
        except MachineTooNoisyError as error:
            return TOO_NOISY, f"machine too noisy: {error}"
        except (aiohttp.ClientError, KubectlError, OSError) as error:
            return CANNOT_RUN, f"broke off in {story.watcher.phase}: {type(error).__name__}: {error}"
        finally:
            watching.cancel()
    return GOALS_HOLD, ""


def _run(
    started: float,
    progress: Progress,
    watcher: Watcher,
    gateway: GatewayClient,
    options: argparse.Namespace,
    unfinished: str,
) -> Run:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    probe = {name.value: round(window.probe_p99_ms, 2) for name, window in progress.windows.items()}
    sends = {name.value: round(window.send_p99_ms, 2) for name, window in progress.windows.items()}
    return Run(
        scenario=options.scenario + (" (quick)" if options.quick else ""),
        started=started,
        ended=time.time(),
        machine=Machine(len(os.sched_getaffinity(0)), round(memory, 1), platform.release(), probe, sends),
        records=tuple(gateway.records),
        samples=tuple(watcher.samples),
        windows=progress.windows,
        decisions=tuple(watcher.decisions),
        bottlenecks=tuple(watcher.bottlenecks),
        auto_at=progress.auto_at,
        step_at=progress.step_at,
        settle_seconds=progress.settle_seconds,
        mig_actions=watcher.mig_changes + sum("mig" in (d.lever or "").lower() for d in watcher.decisions),
        gateway_histogram=not options.no_gateway_histogram,
        unfinished=unfinished,
    )


def _conclude(run: Run, code: int, display: Display, output: Path) -> int:
    found = figures(run)
    judged = results(found)
    verdict = run.unfinished or "all goals hold"
    if not run.unfinished and not all(result.met for result in judged):
        missed = ", ".join(f"{one.goal.key} = {summary.shown(one.measured)}" for one in judged if not one.met)
        code, verdict = GOAL_MISSED, f"missed: {missed}"
    write_reports(run, found, judged, verdict, output)
    summary.show(display.console, run, found, judged, verdict)
    display.console.print(f"report: {output / 'report.html'} and report.json", markup=False)
    return code


async def pod_address(kube: Kube, namespace: str, name: str) -> str:
    """The address of the one running pod of an app."""
    selector = f"labelSelector=app.kubernetes.io/name%3D{name}"
    pods = await kube.items(f"/api/v1/namespaces/{namespace}/pods?{selector}")
    for pod in pods:
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
            return str(pod["status"]["podIP"])
    raise setup.SetupError(f"no running pod of {namespace}/{name}")


async def service_address(kube: Kube, namespace: str, name: str) -> str:
    """The cluster address of a Service; it answers from the host too."""
    found = await kube.get(f"/api/v1/namespaces/{namespace}/services/{name}")
    if found is None:
        raise setup.SetupError(f"no Service {namespace}/{name}")
    return str(found["spec"]["clusterIP"])


if __name__ == "__main__":
    sys.exit(main())
