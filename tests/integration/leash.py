"""Servers that a test starts end with the test's process, however that ends.

Teardown does not run when pytest is killed, as at a timeout of the whole suite; the kernel does what this asks for.
"""

#: Before a command: kill it when the process that started it is gone. It outlives exec, but not a change of user.
LEASH = ("setpriv", "--pdeathsig", "KILL")
