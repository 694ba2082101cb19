package supervisor

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A FIFO as stdin does not make the start wait for a writer, deaf to every stop:
// who has it open is read, as run -S does; without anybody it is at its end.
func TestFIFOAsStdin(t *testing.T) {
	s := open(t, Config{})
	fifo := filepath.Join(t.TempDir(), "in")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	req := sh("cat; exit 7")
	req.Stdin = fifo
	if rec := mustWait(t, s, mustStart(t, s, req).HandleID); *rec.ExitCode != 7 {
		t.Errorf("without a writer: %+v", rec)
	}
	w, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := mustStart(t, s, req)
	_, err = w.WriteString("here\n")
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	rec := mustWait(t, s, a.HandleID)
	var out bytes.Buffer
	if err := s.Output(t.Context(), string(a.HandleID), "", OutputRange{}, &out, nil); err != nil || out.String() != "here\n" || *rec.ExitCode != 7 {
		t.Errorf("%q, %+v, %v", out.String(), rec, err)
	}
}
