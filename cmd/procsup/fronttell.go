package main

import (
	"fmt"
	"strings"

	"procsup/handles"
)

// tell says what procsup did, if it did anything, in one line.
func (f *front) tell(rec *handles.Record, passedOn bool) {
	if !rec.Status.Terminal() {
		f.say("%s goes on in the background; procsup wait %s waits for its end", rec.HandleID, rec.HandleID)
		return
	}
	name, killed := f.req.Command[0], false
	for _, s := range rec.Cleanup.Signals {
		killed = killed || s.Signal == "KILL"
	}
	var parts []string
	if s := rec.Stop; s != nil && (s.By == "host" || killed) {
		text := "stopped by " + s.Reason
		switch rec.Cause {
		case handles.CauseDeadline:
			text = s.Reason + " is over"
		case handles.CauseNoOutput, handles.CauseOwnerGone, handles.CauseShutdown, handles.CauseSession, handles.CauseScope:
			text = s.Reason
		}
		text += ": ended " + name
		if sent := rec.Cleanup.Signals; len(sent) > 0 {
			text += " by " + sent[0].Signal
		}
		if killed {
			text += " and, after the grace, KILL"
		}
		parts = append(parts, text)
	}
	if n := len(rec.Cleanup.Leftovers); n > 0 {
		parts = append(parts, fmt.Sprintf("%s outlived %s (%s): %s", count(n, "process", "processes"), name, leftoverText(f.req.Leftover), processList(rec.Cleanup.Leftovers)))
	}
	if n := len(rec.Cleanup.Survivors); n > 0 && f.req.Leftover != "keep" {
		parts = append(parts, fmt.Sprintf("%s could not be ended: %s", count(n, "process", "processes"), processList(rec.Cleanup.Survivors)))
	}
	if rec.Output != nil && !rec.Output.Complete {
		parts = append(parts, "output is incomplete: a process out of reach keeps it open")
	}
	if n := f.copies.lost.Load(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d bytes of the output were not kept and not passed on: it was read too slowly", n))
	}
	if !passedOn {
		parts = append(parts, "not all output was passed on: nobody read it in time")
	}
	if err := f.copies.err(); err != nil {
		parts = append(parts, "not all output was passed on: "+err.Error())
	}
	if len(parts) > 0 {
		f.say("%s", strings.Join(parts, "; "))
	}
}

func leftoverText(policy string) string {
	switch policy {
	case "wait":
		return "waited for"
	case "keep":
		return "left alone"
	}
	return "ended"
}

// processList names the first few processes.
func processList(ps []handles.Process) string {
	const most = 5
	var s []string
	for i, p := range ps {
		if i == most {
			s = append(s, fmt.Sprintf("and %d more", len(ps)-most))
			break
		}
		s = append(s, strings.TrimSpace(fmt.Sprintf("%d (%s) %s", p.PID, plain(p.Command, 80), p.Why)))
	}
	return strings.Join(s, ", ")
}
