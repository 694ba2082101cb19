package main

import (
	"testing"

	"procsup/handles"
)

// handleExit is the exit code of wait for every ending, as run would have it.
func TestHandleExit(t *testing.T) {
	code := func(n int) *int { return &n }
	for name, c := range map[string]struct {
		rec  handles.Record
		code int
		says bool
	}{
		"completed":         {handles.Record{Status: handles.Completed, ExitCode: code(0)}, 0, false},
		"exit 7":            {handles.Record{Status: handles.Failed, ExitCode: code(7)}, 7, false},
		"signal":            {handles.Record{Status: handles.Failed, Signal: "KILL"}, 137, false},
		"deadline":          {handles.Record{Status: handles.Killed, Cause: handles.CauseDeadline, ExitCode: code(0)}, 124, false},
		"no output":         {handles.Record{Status: handles.Killed, Cause: handles.CauseNoOutput, Signal: "TERM"}, 124, false},
		"cancelled":         {handles.Record{Status: handles.Killed, Cause: handles.CauseCancelled, Signal: "TERM"}, 143, false},
		"graceful":          {handles.Record{Status: handles.Killed, Cause: handles.CauseCancelled, ExitCode: code(0)}, 0, false},
		"never started":     {handles.Record{Status: handles.Cancelled}, 125, true},
		"lost":              {handles.Record{Status: handles.Lost, Error: "both were killed"}, 125, true},
		"not found":         {handles.Record{Status: handles.Failed, Command: []string{"x"}, Error: "e", SpawnError: &handles.SpawnErr{Step: "lookup", Errno: "ENOENT", Path: "x"}}, 127, true},
		"no such file":      {handles.Record{Status: handles.Failed, Command: []string{"/a/x"}, Error: "e", SpawnError: &handles.SpawnErr{Step: "exec", Errno: "ENOENT", Path: "/a/x"}}, 127, true},
		"no interpreter":    {handles.Record{Status: handles.Failed, Command: []string{"/a/x"}, Error: "e", SpawnError: &handles.SpawnErr{Step: "exec", Errno: "ENOENT", Path: "/bin/no"}}, 126, true},
		"not executable":    {handles.Record{Status: handles.Failed, Command: []string{"x"}, Error: "e", SpawnError: &handles.SpawnErr{Step: "exec", Errno: "EACCES", Path: "x"}}, 126, true},
		"no more processes": {handles.Record{Status: handles.Failed, Command: []string{"x"}, Error: "e", SpawnError: &handles.SpawnErr{Step: "fork", Errno: "EAGAIN", Path: "x"}}, 125, true},
	} {
		got, say := handleExit(&c.rec)
		if got != c.code || (say != "") != c.says {
			t.Errorf("%s: %d %q, want %d", name, got, say, c.code)
		}
	}
}

// Every code of the daemon has its exit code.
func TestCodesHaveExitCodes(t *testing.T) {
	for code, want := range map[handles.Code]int{
		handles.CodeInvalid: 64, handles.CodeNotFound: 66, handles.CodeAmbiguous: 66, handles.CodeStarting: 69,
		handles.CodeFull: 73, handles.CodeConflict: 73, handles.CodeNameTaken: 73, handles.CodeKeyConflict: 73, handles.CodeAlreadyEnded: 73,
		handles.CodeDraining: 73, handles.CodePersistence: 73, handles.CodeForbidden: 73, handles.CodeUnknown: 125, handles.CodeInternal: 125,
	} {
		if got := codeOf(code); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
}
