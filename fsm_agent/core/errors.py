"""Every exception that the library raises, in two families: *built wrong* and *ran wrong*.

    FsmAgentError
    ├── BuildError (ValueError)          the configuration is wrong; the author mends it
    │   ├── TableError                   a row or state no run can use, or a cycle nothing bounds
    │   ├── ContractError                a tool's contract contradicts itself or cannot be read
    │   ├── LimitsError                  a limit of the wrong kind
    │   └── MissingExtra (ImportError)   an optional part is used and its package is not installed
    └── RunError                         one run was driven wrongly; the run is unchanged
        ├── NoRow                        no open row for this outcome in this state
        ├── WrongEvent                   an event that the run did not ask for
        ├── RunBusy                      a second driver on a run that is being driven
        ├── CannotResume                 nothing to go on with, or the raise does not open the guard
        ├── CannotDecide                 a person's word about a call that waits for none, or not for this one
        └── SavedRunError                a text that is no saved run, or a value that cannot be saved

A failing tool, model or verifier is no exception here: it is a value in the run.
"""

# What passes through everything that asks a function of the host's; whatever else that raises is its failure.
PASSES = (KeyboardInterrupt, SystemExit)


class FsmAgentError(Exception):
    """Base of every exception that the library raises on its own account."""


class BuildError(FsmAgentError, ValueError):
    """The configuration is wrong; the message names the place and the mend."""


class TableError(BuildError):
    """A machine's table has a state or row that no run can use, or a cycle that nothing bounds."""


class ContractError(BuildError):
    """A tool's contract contradicts itself or cannot be read."""


class LimitsError(BuildError):
    """A limit is of the wrong kind or below its smallest value."""


class MissingExtra(BuildError, ImportError):
    """An optional part was used while its package is not installed.

    `extra` is the name to install: ``pip install "fsm-agent[<extra>]"``.
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(package, extra, purpose)
        self.package, self.extra, self.purpose = package, extra, purpose

    def __str__(self) -> str:
        return f"{self.purpose} needs the package {self.package!r}: pip install \"fsm-agent[{self.extra}]\""


class RunError(FsmAgentError):
    """One run was driven wrongly; the run itself is unchanged."""


class NoRow(RunError):
    """The table has no open row for this outcome in this state."""

    def __init__(self, state: str, outcome: str, takes: tuple[str, ...], closed: tuple[str, ...] = ()) -> None:
        super().__init__(state, outcome, takes, closed)
        self.state, self.outcome, self.takes, self.closed = state, outcome, takes, closed

    def __str__(self) -> str:
        why = f" (closed: {', '.join(self.closed)})" if self.closed else ""
        takes = ", ".join(self.takes) or "nothing, it is final"
        return f"no open row for {self.outcome!r} in state {self.state!r}{why}; this state takes: {takes}"


class WrongEvent(RunError):
    """An event was told that the run did not ask for."""


class RunBusy(RunError):
    """A run is being driven already; one run belongs to one driver at a time."""


class CannotResume(RunError):
    """The run has nothing to go on with, or the raised limits still leave a guard closed."""


class CannotDecide(RunError):
    """A person decided about a call that waits for no decision, is decided already, has expired or has changed."""


class SavedRunError(RunError, ValueError):
    """A text is no saved run of this machine, or a value of the run cannot be saved."""
