package main

import (
	"os"
	"strings"
	"time"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/outcome"
)

// inlineOutput is how many bytes of each stream --json carries, head and tail.
const inlineOutput = 50_000

// record describes the run after everything is over.
func (j *job) record(id platform.Identity, end pgroup.End, endedAt time.Time, complete bool) *handles.Record {
	r := j.blank()
	r.PID, r.GroupID = j.group.PID(), j.group.PID()
	r.Containment = string(j.group.Containment())
	if id.StartTicks != 0 {
		r.ExecIdentity = &handles.Exec{BootID: id.BootID, PID: id.PID, StartTicks: id.StartTicks}
	}
	e := outcome.Ending{Started: j.group.Started(), Ended: endedAt, Exit: end.Exit, Usage: end.Usage, Report: j.report}
	if j.stop != nil {
		e.Stop = &outcome.Stop{ID: string(j.id) + "-stop", Cause: j.stop.cause, By: j.stop.by, Reason: j.stop.reason}
	}
	outcome.Settle(r, e)
	j.streams.into(r, complete)
	return r
}

// blank is a record of what is known before anything ran.
func (j *job) blank() *handles.Record {
	o := j.opt
	dir := o.dir
	if wd, err := os.Getwd(); err == nil {
		if dir == "" {
			dir = wd
		} else if !strings.HasPrefix(dir, "/") {
			dir = wd + "/" + dir
		}
	}
	return &handles.Record{
		HandleID: j.id, Kind: "run", Parent: j.parent, Command: o.argv, Descriptor: strings.Join(o.argv, " "), Dir: dir,
		Liveness: string(platform.Exited), Lifetime: "scope", Delivery: "not_applicable", Cleanup: outcome.NoCleanup(),
	}
}

// failureRecord describes a command that was never started.
func (j *job) failureRecord(f *outcome.Failure) *handles.Record {
	r := j.blank()
	now := time.Now().UTC()
	r.Status, r.Error, r.SpawnError = handles.Failed, f.Msg, &f.Spawn
	r.StartedAt, r.EndedAt = now, now
	return r
}
