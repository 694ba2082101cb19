package journal

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"procsup/handles"
)

// The test binary is its own helper process.
var helpers = map[string]func(args []string) int{
	"commit": helpCommit,
	"open":   helpOpen,
	"lock":   helpLock,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "helper" {
		os.Exit(helpers[os.Args[2]](os.Args[3:]))
	}
	before := fds()
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Println("goroutines left:", err)
		code = 1
	}
	if after := fds(); len(after) > len(before) {
		fmt.Println("descriptors left:", after, "before:", before)
		code = 1
	}
	os.Exit(code)
}

// helper is a command that runs a helper.
func helper(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"helper", name}, args...)...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// fds are the open files, but for those the runtime keeps.
func fds() []string {
	var all []string
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, e := range dir {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "anon_inode") && !strings.Contains(to, "/proc/") {
			all = append(all, to)
		}
	}
	slices.Sort(all)
	return all
}

// openIn opens the journal of dir with Verify; the test closes it.
func openIn(t testing.TB, dir string) *Journal {
	t.Helper()
	j, err := Open(dir, Options{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var epoch = time.UnixMilli(1_800_000_000_000)

// id makes an id that looks like ours; it is the same for the same number.
func id(n int) string { return fmt.Sprintf("hto-01KA0000000000%012X", n) }

// A step is one change of one run, as package supervisor writes it.
type step struct {
	seq     int64
	id      string
	session string
	name    string
	status  handles.Status
	kind    string
	key     string
	at      time.Time // zero = epoch + seq seconds
	pad     int       // bytes of spec
}

func (s step) batch() Batch {
	if s.at.IsZero() {
		s.at = epoch.Add(time.Duration(s.seq) * time.Second)
	}
	rec, err := json.Marshal(handles.Record{
		HandleID: handles.ID(s.id), Kind: "handle", Name: s.name, SessionID: s.session, Command: []string{"sh", "-c", "a && b <c"},
		Status: s.status, StartedAt: s.at, Revision: s.seq, Seq: s.seq,
	})
	if err != nil {
		panic(err)
	}
	r := Run{ID: s.id, Session: s.session, Name: s.name, Status: string(s.status), Live: !s.status.Terminal(), Revision: s.seq, Seq: s.seq, Record: rec}
	e := Entry{Seq: s.seq, At: s.at, Kind: s.kind, Run: s.id}
	if s.status == handles.Starting {
		r.Spec = fmt.Appendf(nil, `{"command":["sh"],"env":["A=%s"]}`, strings.Repeat("x", s.pad))
		e.Body = fmt.Appendf(nil, `{"record":%s,"spec":%s}`, rec, r.Spec)
	} else {
		e.Body = fmt.Appendf(nil, `{"record":%s}`, rec)
	}
	b := Batch{Entries: []Entry{e}, Runs: []Run{r}, Must: s.status.Terminal()}
	if s.key != "" {
		b.Keys = []Key{{s.key, "print of " + s.key, s.id}}
	}
	return b
}

func admitted(seq int64, id string) step {
	return step{seq: seq, id: id, session: "s", status: handles.Starting, kind: "admitted"}
}

func ended(seq int64, id string) step {
	return step{seq: seq, id: id, session: "s", status: handles.Completed, kind: "ended"}
}

// commit submits and waits.
func commit(t testing.TB, j *Journal, steps ...step) {
	t.Helper()
	var last *Commit
	for _, s := range steps {
		last = j.Submit(s.batch())
	}
	must(t, last.Wait())
}

// sound checks that the journal has nothing to complain of.
func sound(t testing.TB, j *Journal) Report {
	t.Helper()
	rep, err := j.Check()
	must(t, err)
	if !rep.OK() {
		t.Fatalf("check: %+v", rep)
	}
	return rep
}

// raw changes the file behind the journal's back.
func raw(t testing.TB, dir string, texts ...string) {
	t.Helper()
	c, err := connect(dsn(dir + "/" + fileName))
	must(t, err)
	for _, text := range texts {
		must(t, c.exec(text))
	}
	must(t, c.close())
}

// hold keeps the writer busy, so that what is submitted becomes one group.
func hold(t testing.TB, j *Journal) (release func()) {
	t.Helper()
	block := make(chan struct{})
	must(t, j.enqueue(item{commit: &Commit{done: make(chan struct{})}, job: func(*writer) error { <-block; return nil }}))
	return func() { close(block) }
}
