package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/outcome"
)

// finish drains the output, reaps, reports, and says how procsup has to end.
func (j *job) finish() error {
	complete, passedOn := j.streams.finish(j.signals, j.stop != nil, j.group.Started())
	exit, endedAt := j.group.Exit()
	share := j.fg.End(exit, j.killed())
	wanted := j.result != nil || j.opt.json
	var id platform.Identity
	if wanted {
		id, _ = j.group.Identity()
	}
	end, err := j.group.Reap()
	j.guard.Dismiss()
	if err != nil {
		return unusable("run: %v", err)
	}
	j.sub.Reap()
	j.tell(complete, passedOn)
	told := j.streams.events.finish(handles.Settle(j.stop != nil, end.Code, end.Signal != 0))
	if wanted {
		r := j.record(id, end, endedAt, complete)
		r.Events = told
		if err := j.write(r); err != nil {
			return unusable("run: %v", err)
		}
	}
	if share {
		pgroup.ShareSignal(exit.Signal)
	}
	return j.mirror(end)
}

// killed reports whether KILL was needed, so that the command could not tidy up.
func (j *job) killed() bool {
	for _, s := range j.report.Signals {
		if s.Signal == syscall.SIGKILL {
			return true
		}
	}
	return false
}

func (j *job) write(r *handles.Record) error {
	if err := j.result.write(r); err != nil {
		return err
	}
	if j.opt.json {
		return writeJSON(os.Stdout, r)
	}
	return nil
}

func (j *job) notStarted(f *outcome.Failure) error {
	j.fg.End(platform.Exit{}, false)
	if err := j.write(j.failureRecord(f)); err != nil {
		return unusable("run: %v", err)
	}
	return &exitError{code: f.Code, msg: f.Msg}
}

// mirror ends procsup the way the command ended.
func (j *job) mirror(end pgroup.End) error {
	if j.stop != nil && (j.stop.cause == handles.CauseDeadline || j.stop.cause == handles.CauseNoOutput) {
		return &exitError{code: exitDeadline}
	}
	if j.stop != nil && j.stop.cause == handles.CauseScope {
		return &exitError{code: exitNoMatch}
	}
	if end.Signal == 0 {
		return &exitError{code: end.Code}
	}
	e := &exitError{code: 128 + int(end.Signal)}
	if !j.opt.exitCode && os.Getpid() != 1 {
		e.signal = end.Signal
	}
	return e
}

// whyKill says what KILL came after: the grace, or somebody who would not wait.
func (j *job) whyKill() string {
	grace := max(j.opt.ladder.Grace, 0)
	sent := j.report.Signals
	for i := range sent {
		if sent[i].Signal == syscall.SIGKILL && sent[i].At.Sub(sent[0].At) < grace {
			return "asked again"
		}
	}
	return "after the grace of " + grace.String()
}

// tell says what procsup did, if it did anything, in one line.
func (j *job) tell(complete, passedOn bool) {
	var parts []string
	r := j.report
	if j.stop != nil && (j.stop.by == "host" || j.killed()) {
		s := "stopped by " + j.stop.reason
		if j.stop.by == "host" {
			s = j.stop.reason + " is over"
			if j.stop.cause == handles.CauseNoOutput || j.stop.cause == handles.CauseScope {
				s = j.stop.reason
			}
		}
		s += ": ended " + j.opt.argv[0] + " by " + platform.SignalName(j.stop.signal)
		if j.killed() {
			s += " and, " + j.whyKill() + ", KILL"
		}
		parts = append(parts, s)
	}
	if n := len(r.Leftovers); n > 0 {
		verb := map[pgroup.Leftover]string{pgroup.Kill: "ended", pgroup.Wait: "waited for", pgroup.Keep: "left alone"}[j.opt.leftover]
		if j.opt.leftover == pgroup.Wait && len(r.Signals) > 0 {
			verb = "ended"
		}
		parts = append(parts, fmt.Sprintf("%s %s that outlived %s: %s", verb, count(n, "process", "processes"), j.opt.argv[0], list(r.Leftovers)))
	}
	if n := len(r.Survivors); n > 0 && j.opt.leftover != pgroup.Keep {
		parts = append(parts, fmt.Sprintf("%s could not be ended: %s", count(n, "process", "processes"), list(r.Survivors)))
	}
	switch why := j.streams.failed.Load(); {
	case why != nil:
		parts = append(parts, *why+"; the command's own was closed then")
	case !complete:
		parts = append(parts, "output is incomplete: a process out of reach keeps it open")
	}
	if !passedOn {
		parts = append(parts, "not all output was passed on: nobody read it in time")
	}
	if len(parts) > 0 {
		j.say("%s", strings.Join(parts, "; "))
	}
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// list names the first few processes.
func list(ms []pgroup.Member) string {
	const most = 5
	var s []string
	for i, m := range ms {
		if i == most {
			s = append(s, fmt.Sprintf("and %d more", len(ms)-most))
			break
		}
		one := fmt.Sprintf("%d (%s)", m.PID, m.Command)
		if m.Why != "" {
			one += " " + m.Why
		}
		s = append(s, one)
	}
	return strings.Join(s, ", ")
}
