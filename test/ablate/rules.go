package main

// A rule is one sentence of how a stop decides and what may happen before
// something is durable, as a patch that removes it.
type rule struct {
	name string
	says string // the rule, with its ids in the contract
	file string
	old  string // once in file
	new  string
	// tests must pass as they are, and fail without the rule; of package.
	pkg   string // "" = supervisor
	tests []string
	quick bool // part of -quick
}

// rules are design.md §6 and contract S4, one by one.
var rules = []rule{
	{
		name: "counts-from-admission", quick: true,
		says: "work counts from its admission on, spawned or not (S4-13, S4-38)",
		file: "supervisor/decide.go",
		old:  "return p < observed && generation >= fence",
		new:  "return p == running && generation >= fence",
		tests: []string{
			"TestS4_34_StopMatrix", "TestS4_43_Fence", "TestA21_StopWhileStarting", "TestS4_17_PersonsStopHolds",
		},
	},
	{
		name: "over-once-observed", quick: true,
		says:  "no longer once its end was observed, saved or not: exit 0 before the stop stays completed (S4-10, S4-27, S4-39, D1)",
		file:  "supervisor/decide.go",
		old:   "return p < observed && generation >= fence",
		new:   "return p < ended && generation >= fence",
		tests: []string{"TestS4_34_StopMatrix", "TestS4_43_Fence", "TestS4_30_EndSeenBeforeStop", "TestS4_40_TheNewerIsNamed"},
	},
	{
		name:  "fence",
		says:  "what an earlier generation admitted and nobody took up is not in flight (S4-43, S4-48)",
		file:  "supervisor/decide.go",
		old:   "return p < observed && generation >= fence",
		new:   "return p < observed",
		tests: []string{"TestS4_43_Fence"},
	},
	{
		name: "nothing-stopped-nothing-written", quick: true,
		says:  "a stop that stops nothing writes nothing (S4-10, S4-39)",
		file:  "supervisor/decide.go",
		old:   "if !workInFlight(r.phase, r.generation, s.fence) {",
		new:   "if _ = workInFlight(r.phase, r.generation, s.fence); false {",
		tests: []string{"TestS4_34_StopMatrix", "TestS4_30_EndSeenBeforeStop", "TestS4_10_StopRacesEnd"},
	},
	{
		name:  "order-is-seq",
		says:  "which came first is told by the journal's numbers, never by a clock (S4-25, S4-29)",
		file:  "supervisor/decide.go",
		old:   "return p < observed || st.seq < observedSeq",
		new:   "return p < observed || st.at.Before(time.Now())",
		tests: []string{"TestS4_29_OrderIsNotTheClocks"},
	},
	{
		name: "persons-stop-holds", quick: true,
		says:  "a person's stop holds over every later one of the host (S4-17, S4-18)",
		file:  "supervisor/decide.go",
		old:   `return earlier != nil && !(d.by == "user"`,
		new:   `return earlier != nil && earlier.by == d.by && !(d.by == "user"`,
		tests: []string{"TestS4_17_PersonsStopHolds"},
	},
	{
		name:  "persons-close-is-written",
		says:  "a person's close after an own cancel is written (S4-17)",
		file:  "supervisor/decide.go",
		old:   `return earlier != nil && !(d.by == "user" && d.kind == "session_close" && earlier.kind != d.kind)`,
		new:   `return earlier != nil`,
		tests: []string{"TestS4_17_PersonsStopHolds"},
	},
	{
		name: "not-over-a-later-start",
		says: "a stop does not hold over what was started after it (S4-19)",
		file: "supervisor/decide.go",
		old:  "func holds(earlier *stop, d decision) bool {\n",
		new: "var last *stop\n\nfunc holds(earlier *stop, d decision) bool {\n" +
			"\tif earlier != nil {\n\t\tlast = earlier\n\t} else if d.kind == \"evict\" {\n\t\tearlier = last\n\t}\n",
		tests: []string{"TestS4_17_PersonsStopHolds"},
	},
	{
		name:  "stop-durable-before-signal",
		says:  "nobody is signalled for a stop that could be forgotten (S4-06)",
		file:  "supervisor/run.go",
		old:   "<-stop.durable.Done() //",
		new:   "_ = stop.durable //",
		tests: []string{"TestS4_06_NoSignalBeforeTheStopIsRecorded"},
	},
	{
		name:  "cancel-told-when-durable",
		says:  "a cancel is answered when its stop is durable (S4-06)",
		file:  "supervisor/cancel.go",
		old:   "if err := st.durable.Wait(); err != nil && cut {",
		new:   "if err := st.durable.Err(); err != nil && cut {",
		tests: []string{"TestS4_06_NoSignalBeforeTheStopIsRecorded"},
	},
	{
		name: "no-spawn-before-admitted", quick: true,
		says:  "nothing is spawned before the journal took `admitted` (S4-44)",
		file:  "supervisor/start.go",
		old:   "if err := admitted.Wait(); err != nil { // no spawn",
		new:   "if err := admitted.Err(); err != nil { // no spawn",
		tests: []string{"TestS4_44_NoSpawnBeforeTheAdmission"},
	},
	{
		name: "answer-after-commit",
		says: "a start is answered after the commit of its spawn (S4-06, S4-44)",
		file: "supervisor/start.go",
		old:  "if err := commit.Wait(); err != nil {\n\t\ts.log.Error(\"record spawn\"",
		new:  "if err := commit.Err(); err != nil {\n\t\ts.log.Error(\"record spawn\"",
		tests: []string{
			"TestS4_44_NoAnswerBeforeTheSpawnIsRecorded",
		},
	},
	{
		name:  "end-told-after-commit",
		says:  "an end is told after its commit (S4-06)",
		file:  "supervisor/run.go",
		old:   "if err := commit.Wait(); err != nil {\n\t\ts.log.Error(\"record end\"",
		new:   "if err := commit.Err(); err != nil {\n\t\ts.log.Error(\"record end\"",
		tests: []string{"TestS4_06_NoEndIsToldBeforeItIsRecorded"},
	},
	{
		name: "cancelled-only-when-confirmed", quick: true,
		says:  "cancelled:true only when the run is over by this stop and nothing of it is left (S4-32, S2-11)",
		file:  "supervisor/cancel.go",
		old:   `return ended && stop != "" && rec.Stop != nil && rec.Stop.ID == stop && rec.Stop.Answer == "took"`,
		new:   `return (ended || true) && stop != ""`,
		tests: []string{"TestS4_32_ConfirmedMeansNothingIsLeft", "TestA21_StopWhileStarting", "TestS3_84_StopOfWhatCannotBeVerified"},
	},
	{
		name:  "refused-is-not-taken",
		says:  "a stop that was refused or is not confirmed did not take (S4-32)",
		file:  "supervisor/outcome/outcome.go",
		old:   "refused = refused && s.Err != nil",
		new:   "refused = refused && s.Err == nil",
		tests: []string{"TestS4_32_RefusedStop", "TestS2_29_Cancel"},
	},
	{
		name:  "own-ending-stays-own",
		says:  "an ending without a stop is the run's own (S4-03, S4-30)",
		file:  "supervisor/run.go",
		old:   "if stopped {\n\t\te.Stop = r.stop.outcome()",
		new:   "if e.Stop = (&outcome.Stop{ID: \"x\", By: \"host\"}); stopped {\n\t\te.Stop = r.stop.outcome()",
		tests: []string{"TestS4_30_EndSeenBeforeStop", "TestG14_KilledIsNotFailed", "TestS4_10_StopRacesEnd"},
	},
	{
		name:  "ending-waits-for-what-was-seen",
		says:  "the ending is what was observed, never a guess (G14)",
		file:  "supervisor/run.go",
		old:   "case <-r.marked:\n\tcase",
		new:   "default:\n\tcase",
		tests: []string{"TestG14_StopWaitsForTheMark"},
	},
	{
		name:  "stopped-is-not-started",
		says:  "what was stopped before its spawn is never started (A21, S4-24)",
		file:  "supervisor/start.go",
		old:   "stopped := r.stop != nil\n",
		new:   "stopped := false\n",
		tests: []string{"TestA21_StopWhileStarting"},
	},
	{
		name: "recovery-writes-no-stop",
		says: "recovery writes no stop rows: it has no proof that anybody stopped anything (S4-26)",
		file: "supervisor/recover.go",
		old:  "func (s *Supervisor) endUnowned(r *run, status handles.Status, why string) {\n",
		new: "func (s *Supervisor) endUnowned(r *run, status handles.Status, why string) {\n" +
			"\ts.decide(r, decision{kind: \"evict\", cause: handles.CauseShutdown, by: \"host\", reason: \"the host was restarted\"})\n",
		tests: []string{"TestS3_84_ARecordWithoutAnIdentity", "TestS3_82_NoProcessWasRecorded"},
	},
	{
		name: "recovery-runs-nothing-again", quick: true,
		says:  "nothing is ever run again by recovery (S2-27, G23)",
		file:  "supervisor/alone.go",
		old:   "s.loseTree(r, \"procsup was killed while it started the command\")",
		new:   "_ = s.launch(r, s.write(r, \"again\", nil))",
		tests: []string{"TestS3_82_NoProcessWasRecorded"},
	},
	{
		name:  "name-is-taken-once",
		says:  "a name belongs to one live run of its session (A22)",
		file:  "supervisor/start.go",
		old:   "spec.Name != \"\" && other != nil {",
		new:   "spec.Name != \"\" && other != nil && false {",
		tests: []string{"TestA22_NameIsTakenOnce", "TestS4_40_TheNewerIsNamed"},
	},
	{
		name:  "name-frees-at-the-end",
		says:  "a name is free once the end is durable, and not before (A22, S4-40)",
		file:  "supervisor/live.go",
		old:   "\ts.unname(r)\n",
		new:   "",
		tests: []string{"TestA22_NameIsTakenOnce", "TestS4_40_TheNewerIsNamed"},
	},
	{
		name: "ends-are-never-refused", quick: true,
		says:  "an end row is never refused (S4-41)",
		file:  "supervisor/entry.go",
		old:   `Must: kind != "admitted"`,
		new:   `Must: false`,
		tests: []string{"TestS4_41_RoomForTheEnd"},
	},
	{
		name:  "room-for-the-end",
		says:  "room for the end is set aside at the admission (S4-41)",
		file:  "supervisor/live.go",
		old:   "s.journal.SetReserve(int64(len(s.runs)+s.owed+spareEnds) * journal.ReservePerRun)",
		new:   "_ = journal.ReservePerRun",
		tests: []string{"TestS4_41_RoomForTheEnd"},
	},
	{
		name:  "place-for-the-end",
		says:  "the end's place in the inbox is set aside at the admission, and is then never refused (S1-51)",
		file:  "supervisor/inbox.go",
		old:   "if n := sess.places + len(sess.owed); n >= wire.InboxSize {",
		new:   "if n := len(sess.owed); n >= wire.InboxSize {",
		tests: []string{"TestS1_51_APlaceIsKeptForEachEnd"},
	},
	{
		name:  "ends-wait-for-room",
		says:  "an end that finds no room waits for it and is not given up (S4-41)",
		file:  "supervisor/journal/writer.go",
		old:   "case !it.batch.Must || !passing(err):",
		new:   "case true:",
		pkg:   "supervisor/journal",
		tests: []string{"TestS4_41_EndOutlivesAFailingDisk"},
	},
	{
		name: "one-decision",
		says: "one function decides every stop (S4-42, S4-11, S4-21)",
		file: "supervisor/shutdown.go",
		old:  "for _, r := range s.stopAll(decision{",
		new:  "for _, r := range s.runs {\n\t\t_ = r.group.Stop(ladder(r.spec), r.hurry)\n\t}\n\tfor _, r := range s.stopAll(decision{",
		tests: []string{
			"TestS4_21_WhoDecides",
		},
	},
	{
		name: "decision-does-not-wait",
		says: "a decision waits for nothing (S4-05, S4-08, S4-09)",
		file: "supervisor/decide.go",
		old:  "\twake(r.kick)\n\treturn st, true",
		new:  "\t_ = st.durable.Wait()\n\ttime.Sleep(100 * time.Millisecond)\n\twake(r.kick)\n\treturn st, true",
		tests: []string{
			"TestS4_08_ADecisionReadsNothingAndWaitsForNothing", "TestS4_42_OneDecisionWithoutWaiting", "TestS4_09_AStopUnderLoadDoesNotWait",
		},
	},
	{
		name:  "stop-beats-a-restart",
		says:  "a restart starts nothing unless the run ended by itself or by this very request: two copies never overlap (A22)",
		file:  "supervisor/cancel.go",
		old:   "case rec.Stop == nil || c.Cancelled:",
		new:   "case true:",
		tests: []string{"TestA22_TwoRestartsMakeOneCopy", "TestA22_AStopBeatsARestart", "TestA22_WhatMayFollow"},
	},
	{
		name:  "repeat-gets-the-first-answer",
		says:  "a repeated cancel gets the first answer (S2-29, S3-12)",
		file:  "supervisor/cancel.go",
		old:   "return s.cutBefore(id, req.Idempotency)",
		new:   "return \"\", nil",
		tests: []string{"TestS2_29_ARepeatedCancelGetsTheFirstAnswer"},
	},
}
