"""What the core knows of the judge: its jobs, its products, and whether it hangs."""

from __future__ import annotations

from anoco_edge.line.core.effects import Effect, ForgetProduct, JudgePicture, PrepareProduct
from anoco_edge.line.core.events import PreparedProduct
from anoco_edge.line.core.settings import MS, LineSettings

Job = tuple[str, int]  # the uid of a part and the number of its capture


class JudgeSlot:
    """The place of the judge, which a child process takes and may leave at any time."""

    def __init__(self, settings: LineSettings) -> None:
        self._hang = settings.judge_hang_ms * MS
        self._prepare = settings.prepare_ms * MS
        self.judge: int | None = None
        self._jobs: dict[Job, int] = {}
        self._preparing: dict[int, int] = {}
        self._heard = 0

    @property
    def idle(self) -> bool:
        """Whether a judge is there that would begin with a picture at once."""
        return self.judge is not None and not self._jobs

    def start(self, judge: int, now: int) -> None:
        """Note a new judge, which holds no product."""
        self.clear()
        self.judge = judge
        self._heard = now

    def hear(self, now: int) -> None:
        """Note that the judge has said something."""
        self._heard = now

    def clear(self) -> None:
        """Forget the judge that was here."""
        self.judge = None
        self._jobs.clear()
        self._preparing.clear()

    def give(self, effect: JudgePicture, now: int) -> None:
        """Note a job."""
        self._jobs[effect.uid, effect.capture] = now

    def allowance(self, now: int) -> int:
        """Return for how long the jobs that are left may still keep the judge silent."""
        return max((since + self._hang - now for since in self._jobs.values()), default=0)

    def finish(self, job: Job) -> bool:
        """Note the end of a job; False where nobody gave it."""
        return self._jobs.pop(job, None) is not None

    def prepare(self, number: int, now: int) -> list[Effect]:
        """Ask for a product once; a request that is under way is not repeated."""
        if self.judge is None or number in self._preparing:
            return []
        self._preparing[number] = now
        return [PrepareProduct(self.judge, number)]

    def end_preparing(self, number: int) -> None:
        """Note that a product was prepared or could not be."""
        self._preparing.pop(number, None)

    @property
    def preparing(self) -> set[int]:
        """The products that the judge is opening."""
        return set(self._preparing)

    def forget(self, product: PreparedProduct) -> list[Effect]:
        """Give a product back."""
        return [] if self.judge is None else [ForgetProduct(self.judge, product)]

    def preparing_too_long(self, now: int) -> list[int]:
        """The products whose opening has taken longer than it may."""
        return [n for n, since in self._preparing.items() if now >= since + self._prepare]

    def hangs_at(self) -> int | None:
        """When the judge counts as hanging unless it answers before, also with nothing to do."""
        if self.judge is None:
            return None
        times = [since + self._hang for since in self._jobs.values()]
        times += [since + self._prepare for since in self._preparing.values()]
        return min(times, default=self._heard + self._hang)
