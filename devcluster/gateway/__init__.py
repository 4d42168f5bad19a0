"""The gateway of the dev cluster: an open-loop load generator that balances as a least-request gateway does.

It sends real requests at the times of a schedule (never waiting for answers first, which would hide
queueing), spreads them over the pods behind a headless Service, and publishes the latency histogram
that a production gateway would. `python -m devcluster.gateway --help` runs it by hand.
"""
