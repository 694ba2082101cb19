package capture

import (
	"context"
	"os/exec"
	"testing"
	"time"
	"fmt"
	"os"
)

func TestSmoke(t *testing.T) {
	l, err := Open(Config{Dir: t.TempDir() + "/x"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := l.Pipe(Stdout)
	if err != nil {
		t.Fatal(err)
	}
	we, _ := l.Pipe(Stderr)
	cmd := exec.Command("sh", "-c", "seq 100000; printf 'err-no-nl' >&2; sleep 0.1; printf '\\033[1mrea\\033[0mdy'")
	cmd.Stdout, cmd.Stderr = w, we
	cmd.Start()
	w.Close()
	we.Close()
	f, err := l.Match(t.Context(), Query{Pattern: "ready"})
	fmt.Println(f, err)
	cmd.Wait()
	fmt.Println(l.Drain(context.Background(), 50*time.Millisecond, time.Second))
	fmt.Println(l.Stream(Stdout).Extent(), l.Stream(Stderr).Extent())
	fmt.Println(l.Close())
	b, _ := os.ReadFile(l.Path(Stdout))
	fmt.Println(len(b), string(b[len(b)-20:]))
	recs, err := l.Records()
	fmt.Println(recs, err)
}
