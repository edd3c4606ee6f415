# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Moving jobs to other nodes: how each is held and released, and what became of it.

A job is held by an operator's hold (qhold -h o), which its owner can neither set nor take off: whatever else holds a job is left
alone. Before that it is noted (held_jobs), until the hold is off again.
"""

import collections
import signal
import time

from ..torque_ckpt.torque.server import parse_exec_host
from .commands import CommandError, JobError
from .job_attributes import HOLD, find_obstacle, get_comment, get_holds, has_our_hold, is_pinned
from .nodes import SIGNALS, NodeError
from .outcomes import build_outcome

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Callable, Iterable
    from .commands import Commands
    from .held_jobs import HeldJobs

RELEASE = 60
"""How long taking a hold off is tried, in seconds."""

SETTLE = 3
"""How long a job must run elsewhere until it is called moved, in seconds: a restart that fails ends sooner."""

GRACE = 10
"""After a signal: how long to wait for the holds that are under way, in seconds."""


class Move:
    """A job that is being moved.

    :param ours: whether the hold is ours
    :param earlier: whether an earlier run set it

    requested  whether qhold was answered
    seconds    from the request until the job was off its node, None before
    verdict    (action, reason) when the job will not be moved and only our hold is to be taken off, else None
    """

    def __init__(self, job_id: str, node: str, job: "dict[str, str]", now: float, ours: bool, earlier: bool = False) -> None:
        self.job_id, self.node, self.job = job_id, node, job
        self.ours, self.earlier = ours, earlier
        self.pinned = is_pinned(job.get("Resource_List.nodes", ""), node)
        self.since = now
        self.requested = earlier or not ours
        self.seconds: "float | None" = None
        self.deadline = 0.0
        self.settled: "float | None" = None
        self.verdict: "tuple[str, str] | None" = None

    def build_outcome(self, action: str, reason: str = "", to: str = "") -> dict:
        """Return what became of the job."""
        return build_outcome(self.job_id, self.node, self.job, action, reason, to, None if self.earlier else self.seconds)


class Migration:
    """Moves jobs.

    :param commands: of TORQUE
    :param held: the open file of the jobs that are held
    :param params: jobs_at_once, hold_timeout, start_timeout and poll, as the module has them

    outcomes  by job id, in the order in which they were known (dict)
    changed   whether a job left its node by our hold, or may still; a checkpoint that fails changes nothing
    """

    def __init__(self, commands: "Commands", held: "HeldJobs", params: dict, clock: "Callable[[], float]" = time.monotonic,
                 sleep: "Callable[[float], None]" = time.sleep) -> None:
        self.commands, self.held, self.params = commands, held, params
        self.clock, self.sleep = clock, sleep
        self.started = clock()
        self.outcomes: "dict[str, dict]" = {}
        self.changed = False
        self._holding: "list[Move]" = []
        self._starting: "list[Move]" = []

    def list_leftovers(self) -> "list[str]":
        """Return the ids of jobs that an earlier run held and this one has not handled."""
        return [job_id for job_id in self.held.nodes if job_id not in self.outcomes]

    def move_jobs(self, jobs: "Iterable[tuple[str, str]]") -> None:
        """Move jobs, (id, node) each, and those that an earlier run held.

        :raises NodeError: when it was interrupted; what could be released is, the sentence names the others
        """
        try:
            for job_id in self.list_leftovers():
                self._take_over(job_id, self.held.nodes[job_id])
            waiting = collections.deque(pair for pair in jobs if pair[0] not in self.held.nodes)
            while waiting or self._holding or self._starting:
                while waiting and len(self._holding) < self.params["jobs_at_once"]:
                    self._begin(*waiting.popleft())
                self._follow()
                if self._holding or self._starting:
                    self.sleep(self.params["poll"])
        except BaseException as error:
            raise NodeError("%s; %s" % (error, self._give_up()))

    def _follow(self) -> None:
        """Look at each job that is under way."""
        for move in list(self._holding):
            self._follow_hold(move)
        for move in list(self._starting):
            self._follow_start(move)

    def _give_up(self) -> str:
        """Release what is held, as far as that is possible within GRACE; return a sentence on it."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        faults: "list[str]" = []
        deadline = self.clock() + GRACE
        while self._holding and self.clock() < deadline and not faults:
            try:
                self._follow()
                self.sleep(min(1, self.params["poll"]))
            except Exception as error:  # whatever it is, the jobs are noted
                faults = [str(error)]
        for move in list(self._starting):
            self._end(move, "queued", "it was not followed any further")
        for move in list(self._holding):
            self._end(move, *(("unreleased", "run again to release it") if move.ours else ("stays", "it was not followed any further")))
        if not self.held.nodes:
            return "; ".join(faults + ["no job is held"])
        return "; ".join(faults + ["still held: %s; run again to release them" % ", ".join(sorted(self.held.nodes))])

    def _end(self, move: Move, action: str, reason: str = "", to: str = "") -> None:
        """Note what became of a job, which is under way no longer."""
        self.outcomes[move.job_id] = move.build_outcome(action, reason, to)
        for moves in (self._holding, self._starting):
            if move in moves:
                moves.remove(move)

    # the hold

    def _take_over(self, job_id: str, node: str) -> None:
        """Follow a job that an earlier run held."""
        job = self.commands.read_job(job_id)
        if has_our_hold(job):
            self._follow_from_now(Move(job_id, node, job, self.clock(), True, True))
        else:
            self.held.remove(job_id)

    def _follow_from_now(self, move: Move) -> None:
        move.deadline = self.clock() + self.params["hold_timeout"]
        self._holding.append(move)

    def _begin(self, job_id: str, node: str) -> None:
        """Hold a job if it can be moved. One on several of the nodes is named for each."""
        if job_id in self.outcomes or any(move.job_id == job_id for move in self._holding + self._starting):
            return
        try:
            job = self.commands.read_job(job_id)
        except CommandError as error:
            self.outcomes[job_id] = build_outcome(job_id, node, {}, "stays", str(error))
            return
        state = job.get("job_state", "C")
        obstacle = find_obstacle(job)
        if state in "CH" or node not in parse_exec_host(job.get("exec_host", "")):
            reason = "it had been held before" if state == "H" else ""
            self.outcomes[job_id] = build_outcome(job_id, node, job, "held" if state == "H" else "left", reason)
        elif obstacle:
            self.outcomes[job_id] = build_outcome(job_id, node, job, "stays", obstacle)
        elif get_holds(job):
            self._follow_from_now(Move(job_id, node, job, self.clock(), False))
        else:
            self._hold(Move(job_id, node, job, self.clock(), True))

    def _hold(self, move: Move) -> None:
        """Set our hold, which is noted before."""
        self.held.add(move.job_id, move.node)
        self._follow_from_now(move)
        try:
            self.commands("root", "qhold", "-h", HOLD, move.job_id)
        except JobError as error:
            self._give_up_job(move, str(error))
        except CommandError:
            pass  # no answer: what the server did will be seen
        move.requested = True

    def _give_up_job(self, move: Move, reason: str) -> None:
        """Take our hold off a job that stays."""
        move.verdict = ("stays", reason)
        move.deadline = self.clock() + RELEASE
        self._take_off(move)

    def _follow_hold(self, move: Move) -> None:
        """See whether a job is held by now, or its checkpoint has failed."""
        if move.verdict:
            self._take_off(move)
            return
        job = self._read(move)
        if job is not None:
            state, holds = job.get("job_state", "C"), get_holds(job)
            if state != "E" and (state != "R" or move.node not in parse_exec_host(job.get("exec_host", ""))):
                self._handle_departure(move, job, state)
                return
            if state == "R" and not (HOLD in holds if move.ours else holds):
                self._forget(move)
                self._end(move, "stays", self._explain_failure(move, job))
                return
        if self.clock() >= move.deadline:
            reason = "its checkpoint had not ended after %d seconds" % self.params["hold_timeout"]
            if move.ours:
                self.changed = True
                self._give_up_job(move, reason + "; if it still succeeds, the job continues elsewhere")
            else:
                self._end(move, "stays", reason)

    @staticmethod
    def _explain_failure(move: Move, job: "dict[str, str]") -> str:
        """Return why a job's checkpoint has failed."""
        comment = get_comment(job)
        if not move.requested:
            return "the run was interrupted before the job was held"
        if comment and comment != get_comment(move.job):
            return comment
        return "its checkpoint failed; journalctl -t ckpt-torque on the node says why; its comment, as before: %s" % (comment or "none")

    # the release

    def _handle_departure(self, move: Move, job: "dict[str, str]", state: str) -> None:
        """Release a job that is off its node."""
        self.changed = self.changed or move.ours
        if move.seconds is None:
            move.seconds = self.clock() - move.since
            move.deadline = self.clock() + RELEASE
        if state == "C" or move.ours:
            self._take_off(move)
        else:
            self._follow_to_start(move, job)

    def _take_off(self, move: Move) -> None:
        """Take our hold off; when that fails, the next look at the job tries again."""
        job, fault = self._read(move), ""
        if job is not None and has_our_hold(job):
            try:
                self.commands("root", "qrls", "-h", HOLD, move.job_id)
            except CommandError as error:
                fault = str(error)
            job = self._read(move)
        if job is not None and not has_our_hold(job):
            self._forget(move)
            if job.get("job_state", "C") == "C":
                self._end(move, "left")
            elif move.verdict:
                self._end(move, *move.verdict)
            else:
                self._follow_to_start(move, job)
        elif self.clock() >= move.deadline:
            fault = fault or "the server does not answer, or does not take the hold off"
            self._end(move, "unreleased", fault + "; run again to release it")

    def _forget(self, move: Move) -> None:
        """Note that a job has no hold of ours any more."""
        if move.ours:
            self.held.remove(move.job_id)

    def _follow_to_start(self, move: Move, job: "dict[str, str]") -> None:
        """Follow a job without a hold of ours to its new node, if it may start."""
        holds = get_holds(job)
        if holds:
            who = {"u": "its user", "o": "an operator", "s": "the system"}
            self._end(move, "held", "%s holds it" % " and ".join(who.get(hold, "hold %s" % hold) for hold in sorted(holds)))
        elif move.pinned:
            self._end(move, "queued", "its resource list names %s, for which it waits" % move.node)
        else:
            move.job = job
            move.deadline = self.clock() + self.params["start_timeout"]
            self._holding.remove(move)
            self._starting.append(move)

    def _follow_start(self, move: Move) -> None:
        """See whether a job runs elsewhere by now."""
        job = self._read(move)
        state = "" if job is None else job.get("job_state", "C")
        if job is not None and state and state in "REC":
            self._note_start(move, parse_exec_host(job.get("exec_host", "")), state)
            return
        move.settled = None
        comment = "" if job is None else get_comment(job)
        if state == "H":
            self._end(move, "held", comment or "somebody holds it")
        elif self.clock() >= move.deadline:
            waited = "it had not started after %d seconds" % self.params["start_timeout"]
            self._end(move, "queued", waited + (" (%s)" % comment if comment and comment != get_comment(move.job) else ""))

    def _note_start(self, move: Move, to: "list[str]", state: str) -> None:
        """Note where a job runs, once it has for a while, or ran."""
        if move.settled is None:
            move.settled = self.clock() + SETTLE
        if state == "C" and (not to or move.node in to):
            self._end(move, "left")
        elif move.node in to:
            self._end(move, "stays", "it was started there again")
        elif state == "C" or self.clock() >= move.settled:
            self._end(move, "moved", to="+".join(to))

    def _read(self, move: Move) -> "dict[str, str] | None":
        """Return a job's attributes, None when the server does not answer now."""
        try:
            return self.commands.read_job(move.job_id)
        except CommandError:
            return None
