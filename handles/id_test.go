package handles

import (
	"regexp"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
)

// S2-37: the prefix shows the class. S2-27: ids are unique and not guessable.
func TestS2_37_IDsAreULIDsOfTheirClass(t *testing.T) {
	shape := regexp.MustCompile(`^hto-[0-7][0-9A-HJKMNP-TV-Z]{25}$`)
	seen := map[ID]bool{}
	before := time.Now().Truncate(time.Millisecond)
	for range 10_000 {
		id := NewID()
		if !shape.MatchString(string(id)) {
			t.Fatalf("id %q does not match %s", id, shape)
		}
		if seen[id] {
			t.Fatalf("id %s twice", id)
		}
		seen[id] = true
	}
	for id := range seen {
		u, err := ulid.ParseStrict(string(id[len(CommandPrefix):]))
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if at := ulid.Time(u.Time()); at.Before(before) || at.After(time.Now()) {
			t.Fatalf("%s carries time %v, made between %v and now", id, at, before)
		}
	}
}

func TestULIDAsTheReferencePackageWritesIt(t *testing.T) {
	var u ulid.ULID
	for i := range u {
		u[i] = byte(i*37 + 200)
	}
	u[0] &= 0x1f
	if got, want := encodeULID(u), u.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// S1-22: a stop of ours, a failure and an end of its own stay apart.
func TestS1_22_Settle(t *testing.T) {
	for name, c := range map[string]struct {
		stopped, signalled bool
		code               int
		want               Status
	}{
		"exit 0":                  {want: Completed},
		"exit 3":                  {code: 3, want: Failed},
		"a signal not ours":       {code: -1, signalled: true, want: Failed},
		"our stop":                {stopped: true, code: -1, signalled: true, want: Killed},
		"exit 0 after our stop":   {stopped: true, want: Killed},
		"exit 143 after our stop": {stopped: true, code: 143, want: Killed},
	} {
		if got := Settle(c.stopped, c.code, c.signalled); got != c.want || !got.Terminal() {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for _, s := range []Status{Queued, Starting, Running, Stopping} {
		if s.Terminal() {
			t.Errorf("%s counts as ended", s)
		}
	}
}
