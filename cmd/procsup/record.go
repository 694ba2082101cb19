package main

import (
	"os"
	"strings"
	"time"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
)

// inlineOutput is how many bytes of each stream --json carries, head and tail.
const inlineOutput = 50_000

// record describes the run after everything is over.
func (j *job) record(id platform.Identity, end pgroup.End, endedAt time.Time, complete bool) *handles.Record {
	r := j.blank()
	started := j.group.Started()
	r.StartedAt, r.EndedAt = started.UTC(), endedAt.UTC()
	r.DurationMS = endedAt.Sub(started).Milliseconds()
	r.PID, r.GroupID = j.group.PID(), j.group.PID()
	r.Containment = string(j.group.Containment())
	if id.StartTicks != 0 {
		r.ExecIdentity = &handles.Exec{BootID: id.BootID, PID: id.PID, StartTicks: id.StartTicks}
	}
	r.Status = handles.Settle(j.stop != nil, end.Code, end.Signal != 0)
	if end.Signal == 0 {
		r.ExitCode = &end.Code
	}
	r.Signal, r.CoreDumped = platform.SignalName(end.Signal), end.CoreDumped
	if j.stop != nil {
		j.stopInto(r)
	}
	r.Usage = &handles.Usage{UserMS: end.Usage.User.Milliseconds(), SystemMS: end.Usage.System.Milliseconds()}
	if end.Usage.MaxRSS > 0 {
		r.Usage.MaxRSSBytes = &end.Usage.MaxRSS
	}
	j.cleanupInto(r)
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
		Liveness: string(platform.Exited), Lifetime: "scope", Delivery: "not_applicable",
		Cleanup: handles.Cleanup{Signals: []handles.Sent{}, Leftovers: []handles.Process{}, Survivors: []handles.Process{}},
	}
}

func (j *job) stopInto(r *handles.Record) {
	s := j.stop
	r.Cause = s.cause
	r.Stop = &handles.Stop{ID: string(j.id) + "-stop", By: s.by, Reason: s.reason, Answer: "took"}
	if len(j.report.Survivors) > 0 {
		r.Stop.Answer = "unconfirmed"
	}
	r.Ending = "failed"
	if s.by == "user" {
		r.Ending = "interrupted"
	}
	r.Graceful = r.ExitCode != nil && *r.ExitCode == 0
}

func (j *job) cleanupInto(r *handles.Record) {
	start := j.group.Started()
	for _, s := range j.report.Signals {
		sent := handles.Sent{Signal: platform.SignalName(s.Signal), To: s.To, PID: s.PID, AtMS: float64(s.At.Sub(start).Microseconds()) / 1000}
		if s.Err != nil {
			sent.Error = s.Err.Error()
		}
		r.Cleanup.Signals = append(r.Cleanup.Signals, sent)
	}
	r.Cleanup.Leftovers = append(r.Cleanup.Leftovers, processes(j.report.Leftovers)...)
	r.Cleanup.Survivors = append(r.Cleanup.Survivors, processes(j.report.Survivors)...)
}

func processes(ms []pgroup.Member) []handles.Process {
	var out []handles.Process
	for _, m := range ms {
		out = append(out, handles.Process{PID: m.PID, StartTicks: m.StartTicks, Command: m.Command, Why: m.Why})
	}
	return out
}

// failureRecord describes a command that was never started.
func (j *job) failureRecord(f *startFailure) *handles.Record {
	r := j.blank()
	now := time.Now().UTC()
	r.Status, r.Error, r.SpawnError = handles.Failed, f.msg, &f.rec
	r.StartedAt, r.EndedAt = now, now
	return r
}
