// Package outcome says what came of a command in the words of handles: where
// its program was found or why it could not be started, and how its ending and
// what was done to its tree look in a record. `procsup run` and the supervisor
// share it, so that every door tells the same.
package outcome

import (
	"os"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
)

// An Ending is what is known when everything is over.
type Ending struct {
	Started, Ended time.Time
	Exit           platform.Exit
	Usage          platform.Usage
	Report         pgroup.Report
	Stop           *Stop // nil: it ended by itself
}

// A Stop is the decision that ended the run, if the run ended by it.
type Stop struct {
	ID     string
	Cause  handles.Cause
	By     string // user, host
	Reason string
	Seq    int64 // 0 where there is no journal
}

// Settle writes the ending into a record that has its start.
func Settle(r *handles.Record, e Ending) {
	r.StartedAt, r.EndedAt = e.Started.UTC(), e.Ended.UTC()
	r.DurationMS = e.Ended.Sub(e.Started).Milliseconds()
	r.Liveness = string(platform.Exited)
	r.Status = handles.Settle(e.Stop != nil, e.Exit.Code, e.Exit.Signal != 0)
	if e.Exit.Signal == 0 {
		code := e.Exit.Code
		r.ExitCode = &code
	}
	r.Signal, r.CoreDumped = platform.SignalName(e.Exit.Signal), e.Exit.CoreDumped
	if e.Stop != nil {
		settleStop(r, e)
	}
	r.Usage = &handles.Usage{UserMS: e.Usage.User.Milliseconds(), SystemMS: e.Usage.System.Milliseconds()}
	if rss := e.Usage.MaxRSS; rss > 0 {
		r.Usage.MaxRSSBytes = &rss
	}
	Cleanup(r, e.Started, e.Report)
}

func settleStop(r *handles.Record, e Ending) {
	s := e.Stop
	r.Cause = s.Cause
	r.Stop = &handles.Stop{ID: s.ID, By: s.By, Reason: s.Reason, Seq: s.Seq, Answer: Answer(e.Report)}
	r.Ending = "failed"
	if s.By == "user" {
		r.Ending = "interrupted"
	}
	r.Graceful = r.ExitCode != nil && *r.ExitCode == 0
}

// Answer is what came of a stop: refused when no signal could be sent,
// unconfirmed when something is left, else took.
func Answer(rep pgroup.Report) string {
	refused := len(rep.Signals) > 0
	for _, s := range rep.Signals {
		refused = refused && s.Err != nil
	}
	switch {
	case refused:
		return "refused"
	case len(rep.Survivors) > 0:
		return "unconfirmed"
	}
	return "took"
}

// Cleanup writes what was done to end the tree and what is left of it.
func Cleanup(r *handles.Record, started time.Time, rep pgroup.Report) {
	r.Cleanup = NoCleanup()
	for _, s := range rep.Signals {
		sent := handles.Sent{Signal: platform.SignalName(s.Signal), To: s.To, PID: s.PID, AtMS: float64(s.At.Sub(started).Microseconds()) / 1000}
		if s.Err != nil {
			sent.Error = s.Err.Error()
		}
		r.Cleanup.Signals = append(r.Cleanup.Signals, sent)
	}
	r.Cleanup.Leftovers = append(r.Cleanup.Leftovers, processes(rep.Leftovers)...)
	r.Cleanup.Survivors = append(r.Cleanup.Survivors, processes(rep.Survivors)...)
	r.Cleanup.Kept = rep.Kept
}

// NoCleanup is the clean-up of a run of which nothing had to be ended.
func NoCleanup() handles.Cleanup {
	return handles.Cleanup{Signals: []handles.Sent{}, Leftovers: []handles.Process{}, Survivors: []handles.Process{}}
}

func processes(ms []pgroup.Member) []handles.Process {
	var out []handles.Process
	for _, m := range ms {
		out = append(out, handles.Process{PID: m.PID, StartTicks: m.StartTicks, Command: m.Command, Why: m.Why})
	}
	return out
}

// Stream describes one captured stream; path "" when nothing is kept.
func Stream(l *capture.Log, src capture.Source, path string) *handles.StreamOutput {
	e := l.Stream(src).Extent()
	o := &handles.StreamOutput{Path: path, Bytes: e.Total, Omitted: ranges(e.Omitted), Why: e.Missing}
	if path != "" && e.Total > 0 {
		if _, err := os.Lstat(path); err != nil {
			o.Omitted, o.Why = []handles.Range{{From: 0, To: e.Total}}, "the file was removed while the command ran"
		}
	}
	return o
}

// Text is head and tail of a stream, at most max bytes; nil when its spool is
// gone, which the record's output says.
func Text(l *capture.Log, src capture.Source, max int64) *handles.Text {
	v, err := l.HeadTail(src, max)
	if err != nil {
		return nil
	}
	return &handles.Text{
		Encoding: v.Encoding, Text: v.Text, Base64: v.Base64,
		From: v.From, To: v.To, Total: v.Total, Omitted: v.Omitted, Gaps: ranges(v.Gaps),
	}
}

func ranges(rs []capture.Range) []handles.Range {
	var out []handles.Range
	for _, r := range rs {
		out = append(out, handles.Range{From: r.From, To: r.To})
	}
	return out
}
