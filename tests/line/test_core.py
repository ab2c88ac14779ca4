"""Every rule of the line's core, on a virtual clock."""

from __future__ import annotations

import pytest
from virtual_line import VirtualLine, asked_for, found, prepared_numbers, settings

from anoco_edge.line.core.effects import (
    DecideCandidate,
    ForgetProduct,
    JudgePicture,
    PutOut,
    RecordAccepted,
    RecordLate,
    RecordPart,
    ReleaseFrame,
    ReplaceJudge,
    Reply,
    Say,
    TakePicture,
)
from anoco_edge.line.core.events import (
    Abort,
    Acknowledge,
    CameraDown,
    CameraProgress,
    CameraUp,
    Candidate,
    CandidateDecision,
    CandidateReport,
    CandidateStage,
    ChangeProduct,
    Enable,
    Halt,
    IoProgress,
    JudgeDown,
    JudgeProgress,
    JudgeUp,
    LivePicture,
    Maintenance,
    NewGeneration,
    PlcBeat,
    PreparationFailure,
    PreparedProduct,
    ProductReady,
    RecorderRoom,
    RegionWord,
    Reset,
    Simulate,
    Tick,
    Trigger,
    TriggerRelease,
)
from anoco_edge.line.core.settings import MS, CameraSettings, LineProduct, LineSettings
from anoco_edge.line.core.states import State
from anoco_edge.line.core.status import Counters
from anoco_edge.line.words.constants import Reason, StatusBit

READY, PASS, FAIL = StatusBit.READY, StatusBit.PASS, StatusBit.FAIL
VALID, NO_VERDICT = StatusBit.RESULT_VALID, StatusBit.NO_VERDICT


@pytest.fixture
def line() -> VirtualLine:
    return VirtualLine().start()


def reason_of(line: VirtualLine) -> Reason:
    return line.status.result.reason


def last_record(line: VirtualLine) -> RecordPart:
    return found(line.effects, RecordPart)[-1]


# ---- a part


def test_a_good_part_passes(line: VirtualLine) -> None:
    assert line.bit(READY) and line.core.state is State.READY
    effects = line.trigger(7, part_code="A1")
    assert asked_for(effects) == ["top"] and found(effects, RecordAccepted)[0].seq == 7
    assert line.bit(StatusBit.BUSY) and line.bit(StatusBit.EXPOSING) and not line.bit(READY)
    assert line.core.state is State.SINGLE_EXECUTION
    line.now += 10
    (job,) = found(line.picture(), JudgePicture)
    assert line.bit(StatusBit.ACQ_DONE) and not line.bit(StatusBit.EXPOSING)
    line.now += 20
    (record,) = found(line.judged(job, ratio=0.5), RecordPart)
    assert line.bit(VALID) and line.bit(PASS) and not line.bit(FAIL)
    words = line.status.words()
    assert (words["RESULT_SEQ"], words["SCORE"], words["PART_CODE_ECHO"]) == (7, 500, "A1")
    assert (words["ACQUIRE_MS"], words["TOTAL_MS"], words["RESERVE_MS"]) == (10, 30, 470)
    assert record.record.verdict == "good" and record.record.captures[0].frame == job.frame
    assert line.status.counters == Counters(triggers=1, good=1)


def test_an_anomalous_part_fails_with_its_regions(line: VirtualLine) -> None:
    line.trigger()
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    regions = tuple(RegionWord(1, n, n, n + 5, n + 5, 1000 + n) for n in range(6))
    line.judged(job, "anomalous", ratio=1.7, regions=regions)
    assert line.bit(FAIL) and not line.bit(PASS) and not line.bit(NO_VERDICT)
    words = line.status.words()
    assert [words[f"REGION{n}_PEAK"] for n in (1, 2, 3, 4)] == [1005, 1004, 1003, 1002]


def test_the_toggle_changes_with_every_result(line: VirtualLine) -> None:
    seen = []
    for _ in range(3):
        line.part()
        seen.append(line.bit(StatusBit.RESULT_TOGGLE))
        line.say(Acknowledge())
    assert seen == [True, False, True]


def test_every_capture_must_be_good() -> None:
    for verdicts, expected in (
        (("good", "good"), PASS),
        (("good", "anomalous"), FAIL),
        (("anomalous", "no-verdict"), FAIL | NO_VERDICT),
    ):
        line = VirtualLine(settings(cameras=("top", "side"))).start()
        assert asked_for(line.trigger()) == ["top", "side"]
        line.now += 1
        jobs = found(line.picture("top") + line.picture("side"), JudgePicture)
        line.judged(jobs[0], verdicts[0])
        assert line.bit(StatusBit.BUSY)
        line.judged(jobs[1], verdicts[1])
        assert line.status.bits & (PASS | FAIL | NO_VERDICT) == expected


def test_a_missing_capture_is_no_verdict() -> None:
    line = VirtualLine(settings(cameras=("top", "side"))).start()
    line.trigger()
    line.now += 1
    (job,) = found(line.picture("top"), JudgePicture)
    line.judged(job)
    line.wait(200)
    assert reason_of(line) is Reason.NO_PICTURE and line.bit(FAIL)


# ---- deadlines


def test_no_picture_within_acquire_ms(line: VirtualLine) -> None:
    line.trigger()
    line.wait(199)
    assert line.bit(StatusBit.BUSY)
    line.wait(1)
    assert reason_of(line) is Reason.NO_PICTURE and line.bit(NO_VERDICT) and line.bit(FAIL)


def test_the_deadline_wins_over_a_verdict_at_the_same_moment(line: VirtualLine) -> None:
    line.trigger()
    begin = line.now
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    line.now = begin + 500
    effects = line.judged(job)
    assert reason_of(line) is Reason.DEADLINE and not line.bit(PASS)
    assert len(found(effects, RecordPart)) == 1 and len(found(effects, RecordLate)) == 1


def test_a_late_verdict_is_recorded_and_never_put_out(line: VirtualLine) -> None:
    line.trigger(3)
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    line.wait(600)
    line.say(Acknowledge())
    assert not line.bit(READY), "the judge still works on the part before"
    effects = line.judged(job)
    assert [late.uid for late in found(effects, RecordLate)] == [job.uid]
    assert not any(put.status.bits & (VALID | PASS) for put in found(effects, PutOut))
    assert line.status.counters.good == 0 and line.bit(READY)


def test_time_does_not_run_back(line: VirtualLine) -> None:
    line.trigger()
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    line.wait(499)
    line.now -= 400
    line.judged(job)
    assert not line.bit(PASS)


# ---- pairing


def test_a_picture_exposed_before_the_trigger_is_not_its_picture(line: VirtualLine) -> None:
    line.now += 5
    line.trigger()
    line.now += 1
    effects = line.picture(ago=3)
    assert not found(effects, JudgePicture) and found(effects, ReleaseFrame)
    assert reason_of(line) is Reason.OUT_OF_STEP
    line.say(Acknowledge())
    assert not line.bit(READY) and line.core.state is State.PREOPERATIONAL


def test_a_step_of_the_counter_is_out_of_step_until_a_test_picture_agrees(
    line: VirtualLine,
) -> None:
    line.trigger()
    line.now += 1
    line.picture(counter=102)
    assert reason_of(line) is Reason.OUT_OF_STEP
    assert asked_for(line.say(Acknowledge())) == []
    assert asked_for(line.effects)[-1] == "top", "it asked for a test picture already"
    line.now += 1
    line.picture()
    assert line.bit(READY)
    assert line.part().bits & PASS


def test_a_lost_frame_costs_one_part_only(line: VirtualLine) -> None:
    line.trigger()
    line.counter["top"] += 1  # exposed, and lost on its way
    line.wait(200)
    line.say(Acknowledge())
    assert line.part().bits & PASS


def test_the_late_picture_of_the_part_before_is_let_go(line: VirtualLine) -> None:
    line.trigger(1)
    begin = line.now
    line.wait(200)
    line.say(Acknowledge())
    line.now += 5
    line.trigger(2)
    line.now += 1
    effects = line.picture(ago=line.now - begin - 2)
    assert not found(effects, JudgePicture) and found(effects, ReleaseFrame)
    (job,) = found(line.picture(), JudgePicture)
    line.judged(job)
    assert line.bit(PASS) and line.status.result.seq == 2


def test_two_pictures_for_one_trigger_are_out_of_step(line: VirtualLine) -> None:
    line.trigger()
    line.now += 1
    line.picture()
    line.picture()
    assert reason_of(line) is Reason.OUT_OF_STEP


def test_an_incomplete_picture_is_no_verdict(line: VirtualLine) -> None:
    line.trigger()
    line.now += 1
    assert not found(line.picture(complete=False), JudgePicture)
    assert reason_of(line) is Reason.PICTURE_INCOMPLETE and line.bit(StatusBit.WARNING)


def test_the_counter_of_16_bits_wraps() -> None:
    line = VirtualLine(settings(bits=16))
    line.counter["top"] = 65534
    line.start()
    for counter in (65535, 1, 2):
        line.counter["top"] = counter
        assert line.part().bits & PASS
        line.say(Acknowledge())


# ---- triggers that are refused


def test_a_trigger_while_busy_is_missed_and_does_not_disturb_the_part(line: VirtualLine) -> None:
    line.trigger(1)
    line.now += 2
    effects = line.trigger(2, client="tcp:1")
    (reply,) = found(effects, Reply)
    assert reply.record.reason is Reason.BUSY and not reply.record.accepted
    assert line.bit(StatusBit.MISSED_TRIGGER)
    line.now += 1
    (job,) = found(line.picture(ago=2), JudgePicture)
    line.judged(job)
    assert line.bit(PASS) and line.status.result.seq == 1
    assert line.status.counters == Counters(triggers=2, good=1, missed=1)
    line.say(Acknowledge())
    line.trigger(3)
    assert not line.bit(StatusBit.MISSED_TRIGGER)


def test_what_is_exposed_after_another_trigger_may_show_another_part(line: VirtualLine) -> None:
    line.trigger(1)
    line.now += 10
    line.trigger(2)
    line.now += 1
    line.picture()
    assert reason_of(line) is Reason.OUT_OF_STEP and line.status.result.seq == 1


def test_the_same_seq_before_the_result_is_a_repeat(line: VirtualLine) -> None:
    line.trigger(5, client="tcp:1")
    assert not asked_for(line.trigger(5, client="tcp:2"))
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    effects = line.judged(job)
    replies = found(effects, Reply)
    assert [(r.client, r.record.verdict) for r in replies] == [("tcp:1", "good"), ("tcp:2", "good")]
    assert effects[-2:] == replies, "the outputs come first, so that they are there with the answer"
    assert line.status.counters == Counters(triggers=1, good=1)


def test_the_seq_of_a_decided_part_is_refused(line: VirtualLine) -> None:
    line.part(seq=5)
    line.say(Acknowledge())
    line.trigger(5)
    assert last_record(line).record.reason is Reason.SEQUENCE_REPEATED
    line.trigger(6)
    assert line.bit(StatusBit.BUSY)


def test_a_refused_seq_may_come_again(line: VirtualLine) -> None:
    line.say(Enable(False))
    line.trigger(5)
    assert last_record(line).record.reason is Reason.DISABLED
    line.say(Enable(True))
    line.trigger(5)
    assert line.bit(StatusBit.BUSY) and not line.bit(StatusBit.WARNING)


def test_a_jump_is_a_warning(line: VirtualLine) -> None:
    line.part(seq=5)
    line.say(Acknowledge())
    assert line.part(seq=9).bits & PASS
    assert line.bit(StatusBit.WARNING)
    line.say(Acknowledge())
    line.part(seq=10)
    assert not line.bit(StatusBit.WARNING)


def test_a_jump_is_a_fault_under_strict_sequence() -> None:
    line = VirtualLine(settings(strict_sequence=True)).start()
    line.part(seq=65535)
    line.say(Acknowledge())
    line.part(seq=1)
    assert line.bit(PASS)
    line.say(Acknowledge())
    line.trigger(3)
    assert line.core.state is State.ERROR and line.bit(StatusBit.FAULT) and not line.bit(READY)
    assert last_record(line).record.reason is Reason.SEQUENCE_JUMP


def test_the_station_counts_where_the_plc_does_not(line: VirtualLine) -> None:
    seqs = []
    for _ in range(3):
        seqs.append(line.part().result.seq)
        line.say(Acknowledge())
    assert seqs == [1, 2, 3]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Enable(False), Reason.DISABLED),
        (Maintenance(True), Reason.MAINTENANCE),
        (CameraDown("top"), Reason.CAMERA_DOWN),
        (JudgeDown(1), Reason.JUDGE_DOWN),
        (ChangeProduct(2), Reason.PRODUCT_CHANGE),
        (ChangeProduct(9), Reason.PRODUCT_CHANGE),
        (Halt(), Reason.NOT_READY),
        (Reset(), Reason.OUT_OF_STEP),
        (Simulate(True), Reason.OUT_OF_STEP),
        (RecorderRoom(rows=False), Reason.RECORDER_FULL),
    ],
)
def test_ready_is_low_and_a_trigger_refused(
    line: VirtualLine, event: object, reason: Reason
) -> None:
    line.say(event)  # type: ignore[arg-type]
    assert not line.bit(READY)
    line.trigger()
    assert last_record(line).record.reason is reason
    assert line.status.counters == Counters(triggers=1, missed=1)


def test_nothing_is_ready_before_the_self_test() -> None:
    line = VirtualLine(counters=Counters(triggers=40, good=40))
    line.say(Enable(True))
    line.say(JudgeUp(1))
    line.say(CameraUp("top"))
    assert line.core.state is State.PREOPERATIONAL and not line.bit(READY)
    line.test_cameras()
    assert line.core.state is State.INITIALIZED and not line.bit(READY)
    line.prepare()
    assert line.core.state is State.READY and not line.bit(READY), "no I/O has made progress"
    line.progress()
    assert line.bit(READY) and not line.bit(VALID)
    line.part()
    assert line.status.counters == Counters(triggers=41, good=41)


# ---- results


def test_a_result_is_held_until_it_is_acknowledged(line: VirtualLine) -> None:
    line.part(seq=4)
    line.wait(900)
    assert line.bit(VALID) and not line.bit(READY)
    line.say(Acknowledge(3))
    assert line.bit(VALID), "another part was acknowledged"
    line.say(Acknowledge(4))
    assert not line.bit(VALID) and not line.bit(PASS) and line.bit(READY)


def test_an_unacknowledged_result_ends_after_hold_ms_with_a_warning(line: VirtualLine) -> None:
    line.part()
    line.wait(1000)
    assert not line.bit(VALID) and line.bit(StatusBit.WARNING) and line.bit(READY)
    line.part()
    line.say(Acknowledge())
    assert not line.bit(StatusBit.WARNING)


def test_without_acknowledge_the_next_trigger_takes_the_result_away() -> None:
    line = VirtualLine(settings(acknowledge=False)).start()
    line.part()
    assert line.bit(VALID) and line.bit(READY)
    line.trigger()
    assert not line.bit(VALID) and not line.bit(PASS)


def test_trigger_ack_follows_the_bit_and_not_messages(line: VirtualLine) -> None:
    line.trigger(1)
    assert line.bit(StatusBit.TRIGGER_ACK)
    line.say(TriggerRelease())
    assert not line.bit(StatusBit.TRIGGER_ACK)
    line.say(Reset())
    line.test_cameras()
    line.trigger(2, client="tcp:1")
    assert line.bit(StatusBit.BUSY) and not line.bit(StatusBit.TRIGGER_ACK)


# ---- faults and RESET


def test_fault_after_parts_in_a_row_without_a_verdict(line: VirtualLine) -> None:
    for n in range(3):
        assert line.bit(READY), n
        line.trigger()
        line.counter["top"] += 1
        line.wait(200)
        line.say(Acknowledge())
    assert line.core.state is State.ERROR and line.bit(StatusBit.FAULT) and not line.bit(READY)
    line.wait(5000)
    assert line.core.state is State.ERROR, "only RESET leaves it"
    line.say(Reset())
    line.test_cameras()
    assert line.bit(READY) and not line.bit(StatusBit.FAULT)


def test_a_verdict_between_ends_the_row(line: VirtualLine) -> None:
    for _ in range(4):
        line.trigger()
        line.counter["top"] += 1
        line.wait(200)
        line.say(Acknowledge())
        line.part("anomalous")
        line.say(Acknowledge())
    assert line.core.state is State.READY


@pytest.mark.parametrize("step", ["idle", "exposing", "judging", "held", "fault", "halted"])
def test_reset_always_works(step: str) -> None:
    line = VirtualLine(settings(fault_after=1)).start()
    if step in ("exposing", "judging", "fault"):
        line.trigger(client="tcp:1")
    if step == "judging":
        line.now += 1
        (job,) = found(line.picture(), JudgePicture)
    if step == "fault":
        line.wait(300)
    if step == "held":
        line.part()
    if step == "halted":
        line.say(Halt())
    effects = line.say(Reset())
    assert not line.status.bits & (VALID | PASS | FAIL | READY | StatusBit.FAULT)
    assert line.core.state is State.PREOPERATIONAL
    if step in ("exposing", "judging"):
        (reply,) = found(effects, Reply)
        assert reply.record.reason is Reason.RESET
    line.test_cameras()
    if step == "judging":
        assert not line.bit(READY)
        line.judged(job)
        assert not line.bit(VALID)
    assert line.bit(READY)
    assert line.part().bits & PASS


@pytest.mark.parametrize("step", ["exposing", "judging"])
def test_abort_gives_up_the_part_and_nothing_else(step: str) -> None:
    line = VirtualLine(settings(fault_after=1)).start()
    line.trigger(client="opcua:1")
    line.now += 1
    jobs = found(line.picture(), JudgePicture) if step == "judging" else []
    (reply,) = found(line.say(Abort()), Reply)
    assert (reply.record.verdict, reply.record.reason) == ("no-verdict", Reason.RESET)
    assert line.status.bits & (VALID | PASS | FAIL) == VALID | FAIL
    assert line.core.state is State.READY, "no fault: somebody wanted it so"
    for job in jobs:
        assert found(line.judged(job), RecordLate), "it is recorded and not put out"
    if not jobs:
        assert not found(line.picture(), JudgePicture), "nobody waits for it any more"
    assert line.status.bits & (VALID | PASS | FAIL) == VALID | FAIL
    line.say(Acknowledge())
    assert line.bit(READY) and not found(line.say(Abort()), Reply), "nothing is pending"
    assert line.part().bits & PASS


# ---- the judge


def test_a_hanging_judge_is_replaced_and_its_part_rejected() -> None:
    line = VirtualLine(settings(judge_hang_ms=300)).start()
    line.trigger()
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    effects = line.wait(300, alive=False)
    assert [r.judge for r in found(effects, ReplaceJudge)] == [1]
    assert reason_of(line) is Reason.JUDGE_DOWN
    line.say(Acknowledge())
    line.judge = 2
    assert prepared_numbers(line.say(JudgeUp(2))) == [1]
    late = line.judged(job)
    assert found(late, RecordLate) and not line.bit(VALID), "an answer of the killed judge"
    line.progress()
    line.prepare()
    assert line.part().bits & PASS


def test_a_hanging_judge_is_replaced_after_the_deadline_too(line: VirtualLine) -> None:
    line.trigger()
    line.now += 1
    line.picture()
    effects = line.wait(600)
    assert reason_of(line) is Reason.DEADLINE and not found(effects, ReplaceJudge)
    assert found(line.wait(1500), ReplaceJudge)


def test_a_judge_that_says_nothing_is_replaced_while_idle(line: VirtualLine) -> None:
    effects = []
    for _ in range(25):
        line.now += 100
        for event in (CameraProgress("top"), IoProgress()):
            effects += line.say(event)
    assert len(found(effects, ReplaceJudge)) == 1 and not line.bit(READY)


def test_a_crashed_judge_is_replaced_once(line: VirtualLine) -> None:
    assert len(found(line.say(JudgeDown(1, "killed")), ReplaceJudge)) == 1
    assert not found(line.say(JudgeDown(1, "killed")), ReplaceJudge)


def test_an_answer_nobody_asked_for_decides_nothing(line: VirtualLine) -> None:
    line.trigger()
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    line.judged(JudgePicture(1, "other", 0, job.frame, job.product))
    assert line.bit(StatusBit.BUSY)


@pytest.mark.parametrize(
    "product",
    [PreparedProduct(2, 1, 0xBEEF), PreparedProduct(1, 2, 0xBEEF), PreparedProduct(1, 1, 0)],
)
def test_a_verdict_of_another_product_is_no_verdict(
    line: VirtualLine, product: PreparedProduct
) -> None:
    line.trigger()
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    line.judged(job, product=product)
    assert reason_of(line) is Reason.WRONG_PRODUCT and not line.bit(PASS)


# ---- the candidate


def test_the_plc_decides_about_a_candidate_while_a_part_is_judged(line: VirtualLine) -> None:
    line.say(CandidateReport(Candidate(7, CandidateStage.JUDGING, 3)))
    words = line.status.words()
    assert (words["CANDIDATE"], words["CANDIDATE_DIFFERENCES"]) == (1, 3)
    line.trigger()
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    before = line.status
    effects = line.say(CandidateDecision(True, "tcp 10.0.0.5"))
    assert effects == [
        Say("info", "TAKE_CANDIDATE by tcp 10.0.0.5"),
        DecideCandidate(7, True, "tcp 10.0.0.5"),
    ], "and nothing about the part"
    assert line.status == before
    line.say(NewGeneration())  # the station has made the change
    line.prepare(1, generation=2)
    assert line.status.generation == 1, "the part in work is judged by the generation before"
    line.judged(job)
    assert line.bit(PASS) and line.status.generation == 2
    line.say(CandidateReport(Candidate()))
    assert line.status.words()["CANDIDATE"] == 0


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (None, "the page does not run"),
        (CandidateReport(None), "the page does not run"),
        (CandidateReport(Candidate()), "there is no candidate"),
    ],
)
def test_a_decision_without_a_candidate_has_no_effect(
    line: VirtualLine, report: CandidateReport | None, why: str
) -> None:
    line.say(CandidateReport(Candidate(7, CandidateStage.WAITING)))
    if report is None:
        line = VirtualLine().start()
    else:
        line.say(report)
    (said,) = line.say(CandidateDecision(False, "http 10.0.0.7"))
    assert said == Say("warning", f"DROP_CANDIDATE by http 10.0.0.7 has no effect: {why}")
    assert line.status.words()["CANDIDATE"] == 0 and line.bit(READY)


# ---- products


def test_a_change_of_product_waits_until_it_is_prepared(line: VirtualLine) -> None:
    effects = line.say(ChangeProduct(2))
    assert prepared_numbers(effects) == [2] and line.core.state is State.INITIALIZED
    assert not line.bit(READY) and line.status.product == 1
    line.prepare(2)
    assert line.bit(READY) and line.status.product == 2
    assert found(line.effects, ForgetProduct)[-1].product.number == 1
    line.trigger()
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    assert job.product.number == 2


def test_the_next_product_is_prepared_while_a_part_is_judged(line: VirtualLine) -> None:
    line.trigger()
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    assert prepared_numbers(line.say(ChangeProduct(2))) == [2]
    line.prepare(2)
    assert line.status.product == 1 and not found(line.effects, ForgetProduct)
    line.judged(job)
    assert line.bit(PASS) and line.status.product == 2
    assert [f.product.number for f in found(line.effects, ForgetProduct)] == [1]


def test_a_change_that_fails_keeps_the_line_from_judging_by_the_old_product(
    line: VirtualLine,
) -> None:
    line.say(ChangeProduct(2))
    line.say(PreparationFailure(1, 2, "damaged"))
    line.wait(100)
    assert not line.bit(READY) and line.bit(StatusBit.WARNING)
    line.say(Reset())
    line.test_cameras()
    assert line.bit(READY) and line.status.product == 1 and not line.bit(StatusBit.WARNING)


def test_a_product_of_no_number_is_never_prepared(line: VirtualLine) -> None:
    """A judge that is replaced is asked for what is needed, which must be nothing here."""
    effects = line.say(ChangeProduct(9)) + line.say(JudgeDown(1, "killed")) + line.say(JudgeUp(2))
    assert prepared_numbers(effects) == [] and line.bit(StatusBit.WARNING)
    line.say(ProductReady(2, PreparedProduct(9, 1, 0)))
    assert not line.bit(READY) and line.status.product == 0
    assert prepared_numbers(line.say(Reset())) == [1]


def test_a_product_that_nobody_wants_any_more_is_given_back(line: VirtualLine) -> None:
    line.say(ChangeProduct(2))
    line.say(ChangeProduct(1))
    assert line.bit(READY)
    line.prepare(2)
    assert line.status.product == 1
    assert [f.product.number for f in found(line.effects, ForgetProduct)] == [2]


def test_a_new_generation_is_taken_between_two_parts_without_a_pause(line: VirtualLine) -> None:
    line.trigger()
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    assert prepared_numbers(line.say(NewGeneration())) == [1]
    line.prepare(1, generation=2)
    assert line.status.generation == 1
    line.judged(job)
    assert line.bit(PASS) and line.status.generation == 2
    line.say(Acknowledge())
    assert line.bit(READY)


def test_preparing_that_never_ends_is_a_failed_change() -> None:
    line = VirtualLine(settings(prepare_ms=5000)).start()
    line.say(ChangeProduct(2))
    assert found(line.wait(5000), ReplaceJudge)
    line.judge = 2
    assert prepared_numbers(line.say(JudgeUp(2))) == []
    line.say(Reset())
    assert prepared_numbers(line.effects)[-1] == 1


# ---- alive


@pytest.mark.parametrize("dead", ["camera", "judge", "io"])
def test_the_heartbeat_stops_with_each_component(line: VirtualLine, dead: str) -> None:
    line.wait(1000)
    assert line.status.heartbeat >= 9
    events = {"camera": CameraProgress("top"), "judge": JudgeProgress(1), "io": IoProgress()}
    beats = []
    for _ in range(30):
        line.now += 100
        for name, event in events.items():
            if name != dead:
                line.say(event)
        line.say(Tick())
        beats.append(line.status.heartbeat)
        if dead == "judge" and len(beats) == 19:  # before it is replaced
            break
    assert len(set(beats[:8])) == 8 and len(set(beats[12:])) == 1
    assert not line.bit(READY)
    line.trigger()
    assert last_record(line).record.reason is Reason.NOT_ALIVE


def test_the_news_that_something_died_comes_before_the_beat_that_is_due(line: VirtualLine) -> None:
    line.wait(50)
    before = line.status.heartbeat
    line.now = line.core._life.next_beat / MS
    line.say(JudgeDown(1, "killed"))
    assert line.status.heartbeat == before


def test_ready_and_the_reasons_why_not_are_said_once(line: VirtualLine) -> None:
    line.part()
    line.say(Acknowledge())
    line.part(seq=9)
    line.say(Acknowledge())
    line.say(Enable(False))
    line.say(Enable(True))
    said = [effect.text for effect in found(line.effects, Say) if "ready" in effect.text]
    assert said[-3:] == ["ready", "not ready (DISABLED): ENABLE is low.", "ready"]
    assert said.count("ready") == 2


def test_a_part_is_not_good_on_a_dead_station(line: VirtualLine) -> None:
    line = VirtualLine(settings(deadline_ms=5000, acquire_ms=5000, judge_hang_ms=9000)).start()
    line.trigger()
    line.now += 1
    (job,) = found(line.picture(), JudgePicture)
    line.now += 1500  # neither the camera nor I/O has made progress
    line.judged(job)
    assert reason_of(line) is Reason.NOT_ALIVE and not line.bit(PASS)


def test_the_link_to_the_plc_is_watched() -> None:
    line = VirtualLine(settings(plc_timeout_ms=300)).start()
    assert not line.bit(READY) and not line.bit(StatusBit.PLC_LINK)
    line.say(PlcBeat(1))
    assert line.bit(READY) and line.bit(StatusBit.PLC_LINK)
    line.wait(200)
    line.say(PlcBeat(1))
    line.wait(100)
    assert not line.bit(READY) and not line.bit(StatusBit.PLC_LINK)
    line.say(PlcBeat(2))
    assert line.bit(READY)


# ---- cameras


def test_a_camera_that_is_lost_rejects_its_part_and_comes_back(line: VirtualLine) -> None:
    line.trigger()
    line.say(CameraDown("top", "unplugged"))
    assert reason_of(line) is Reason.CAMERA_DOWN
    line.say(Acknowledge())
    line.wait(3000)
    assert line.core.state is State.PREOPERATIONAL
    line.counter["top"] = 1
    assert asked_for(line.say(CameraUp("top"))) == ["top"]
    line.test_cameras()
    assert line.part().bits & PASS


def test_a_camera_that_is_not_in_step_is_asked_again(line: VirtualLine) -> None:
    line.say(Reset())
    assert asked_for(line.wait(1000)) == ["top"] * 5
    line.test_cameras()
    assert line.bit(READY)


def test_simulated_pictures_are_marked_and_need_their_own_test() -> None:
    line = VirtualLine(settings(simulates=True)).start()
    line.part()
    line.say(Simulate(True))
    assert line.bit(PASS) and not line.bit(StatusBit.SIMULATED), "the result was a real one"
    line.say(Acknowledge())
    assert line.bit(StatusBit.SIMULATED) and not line.bit(READY)
    assert found(line.effects, TakePicture)[-1].simulated
    line.now += 1
    assert found(line.picture(), ReleaseFrame), "a picture of the camera itself is of no use now"
    assert not line.bit(READY)
    line.picture(simulated=True)
    assert line.bit(READY)
    line.trigger()
    line.now += 5
    line.picture()
    (job,) = found(line.picture(simulated=True, counter=104), JudgePicture)
    assert job.frame.simulated
    line.judged(job)
    line.say(Simulate(False))
    assert line.bit(PASS) and line.bit(StatusBit.SIMULATED), "the result was a simulated one"
    assert found(line.effects, RecordPart)[-1].record.simulated
    line.say(Acknowledge())
    line.now += 1
    assert found(line.picture(simulated=True), ReleaseFrame) and not line.bit(READY)


def test_a_stored_picture_is_no_sign_of_life_of_the_camera() -> None:
    line = VirtualLine(settings(simulates=True)).start()
    line.say(Simulate(True))
    line.now += 1
    line.picture(simulated=True)
    assert line.bit(READY)
    for _ in range(6):
        line.now += 200
        line.say(JudgeProgress(1))
        line.say(IoProgress())
        line.picture(simulated=True)
    assert line.core.hung == ["camera:top"]


def test_a_camera_without_stored_pictures_goes_on_and_the_result_is_marked(
    line: VirtualLine,
) -> None:
    line.say(Simulate(True))
    line.test_cameras()
    assert not found(line.effects, TakePicture)[-1].simulated
    line.part()
    assert line.bit(PASS) and line.bit(StatusBit.SIMULATED)


# ---- wired trigger


def wired() -> VirtualLine:
    return VirtualLine(settings(trigger="camera", acknowledge=False)).start()


def test_with_a_wired_trigger_the_picture_makes_the_part() -> None:
    line = wired()
    assert line.core.state is State.CONTINUOUS_EXECUTION and line.bit(READY)
    line.now += 10
    (job,) = found(line.picture(), JudgePicture)
    line.judged(job)
    assert line.bit(PASS) and line.status.result.seq == 1
    line.trigger(9)
    assert last_record(line).record.reason is Reason.WIRED
    line.say(Enable(False))
    assert line.core.state is State.READY and not line.bit(READY)


def test_with_a_wired_trigger_lost_frames_are_missed_parts() -> None:
    line = wired()
    line.now += 10
    (job,) = found(line.picture(), JudgePicture)
    line.judged(job)
    line.now += 10
    (job,) = found(line.picture(counter=103), JudgePicture)
    line.judged(job)
    assert line.status.result.seq == 4 and line.status.counters.missed == 2
    line.now += 10
    line.picture(counter=50)
    assert last_record(line).record.reason is Reason.OUT_OF_STEP


def test_with_a_wired_trigger_the_deadline_counts_from_the_exposure() -> None:
    line = wired()
    line.wait(1000)
    line.picture(ago=250)
    assert reason_of(line) is Reason.NO_PICTURE
    line.now += 10
    (job,) = found(line.picture(ago=100), JudgePicture)
    line.wait(400)
    line.judged(job)
    assert reason_of(line) is Reason.DEADLINE


def test_a_person_looks_at_a_camera_while_the_station_is_paused(line: VirtualLine) -> None:
    assert asked_for(line.say(LivePicture("top"))) == [], "the next part may need it"
    line.say(Maintenance(True))
    line.wait(300)  # the time of the test picture ends
    assert asked_for(line.say(LivePicture("left"))) == []
    assert asked_for(line.say(LivePicture("top"))) == ["top"]
    assert asked_for(line.say(LivePicture("top"))) == [], "one at a time"
    line.now += 1
    (released,) = found(line.picture(), ReleaseFrame)
    assert released.frame.camera == "top"
    line.wait(300)
    line.say(Maintenance(False))
    line.part()
    assert line.bit(PASS), "the camera is still in step"


def test_a_picture_for_a_person_is_never_that_of_a_part(line: VirtualLine) -> None:
    line.say(Maintenance(True))
    line.wait(300)
    assert asked_for(line.say(LivePicture("top"))) == ["top"]
    exposed = line.now
    line.now += 5
    line.say(Maintenance(False))
    line.trigger(7)
    assert found(line.picture(ago=line.now - exposed - 1), JudgePicture) == []
    line.now += 1
    assert len(found(line.picture(), JudgePicture)) == 1


def test_a_picture_for_a_person_may_be_of_a_camera_that_the_product_has_not() -> None:
    cameras = (CameraSettings("top"), CameraSettings("side"))
    products = (LineProduct(1, "washer", ("top",)),)
    line = VirtualLine(LineSettings(cameras, products)).start()
    line.wait(300)  # the time of the test pictures has ended
    line.say(Maintenance(True))
    assert asked_for(line.say(LivePicture("side"))) == ["side"]
    line.say(Maintenance(False))
    line.trigger()
    line.now += 1
    assert found(line.picture("side"), ReleaseFrame) and line.bit(StatusBit.BUSY)
    (job,) = found(line.picture("top"), JudgePicture)
    line.judged(job)
    assert line.bit(PASS)


def test_with_a_wired_trigger_nobody_takes_pictures_by_hand() -> None:
    line = wired()
    line.say(Maintenance(True))
    assert asked_for(line.say(LivePicture("top"))) == []


def test_a_picture_exposed_before_ready_makes_no_part() -> None:
    line = wired()
    line.say(Maintenance(True))
    line.now += 50
    line.say(Maintenance(False))
    line.picture(ago=20)
    assert last_record(line).record.reason is Reason.NOT_READY


def test_the_core_wakes_when_something_is_due(line: VirtualLine) -> None:
    line.trigger()
    begin = line.now
    times = []
    while line.bit(StatusBit.BUSY):
        line.now = line.core.next_wakeup() / MS
        times.append(line.now - begin)
        line.say(Tick())
    assert times[-1] == pytest.approx(200)


def test_the_bits_of_a_bus_become_events() -> None:
    from anoco_edge.line.buses.command_edges import CommandEdges
    from anoco_edge.line.words.constants import CommandBit
    from anoco_edge.line.words.registers import CommandImage

    edges = CommandEdges()
    everything = CommandBit(sum(CommandBit))
    first = edges.read(CommandImage(everything))
    assert Trigger(0) not in first and Reset() not in first and Enable(True) in first
    edges.read(CommandImage())
    assert edges.read(CommandImage(everything, 3, 2, 9, "A"), "modbus 10.0.0.5") == [
        PlcBeat(9),
        Reset(),
        Enable(True),
        Simulate(True),
        Acknowledge(),
        ChangeProduct(2),
        *(CandidateDecision(False, "modbus 10.0.0.5"), CandidateDecision(True, "modbus 10.0.0.5")),
        Trigger(3, "A"),
    ]
    assert edges.read(CommandImage(everything, 3, 2, 9, "A")) == [PlcBeat(9)]
