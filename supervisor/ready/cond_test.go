package ready

import (
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Cond{
		"output:a b:c":                    {Kind: Output, Pattern: "a b:c"},
		"notify":                          {Kind: Notify},
		"fd:3":                            {Kind: FD, FD: 3},
		"tcp:localhost:80":                {Kind: TCP, Host: "localhost", Port: "80"},
		"tcp:[::1]:80":                    {Kind: TCP, Host: "::1", Port: "80"},
		"unix:sock":                       {Kind: Unix, Path: "/d/sock"},
		"unix:/a/sock":                    {Kind: Unix, Path: "/a/sock"},
		"unix:@name":                      {Kind: Unix, Path: "@name"},
		"http:http://h/p":                 {Kind: HTTP, Host: "h", Port: "80"},
		"http://h:81/p=404":               {Kind: HTTP, Host: "h", Port: "81", Status: 404},
		"http://h/?a=200":                 {Kind: HTTP, Host: "h", Port: "80"},
		"http://h/?a=200=204":             {Kind: HTTP, Host: "h", Port: "80", Status: 204},
		"http://h/?a=b&c=204":             {Kind: HTTP, Host: "h", Port: "80"},
		"https://h/":                      {Kind: HTTP, Host: "h", Port: "443"},
		"http://unix:/s.sock:/path=201":   {Kind: HTTP, Host: "localhost", Port: "80", Path: "/s.sock", Status: 201},
		"http:http://unix:rel.sock:/path": {Kind: HTTP, Host: "localhost", Port: "80", Path: "/d/rel.sock"},
		"http://unix:/s.sock":             {Kind: HTTP, Host: "localhost", Port: "80", Path: "/s.sock"},
		"file:a/../b":                     {Kind: File, Path: "/d/b"},
		"exec:test -f x && y":             {Kind: Exec, Command: "test -f x && y"},
	} {
		got, err := Parse(text, "/d")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		want.Text, want.URL = text, got.URL
		if got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
		if got.Kind == HTTP && (got.URL.Host == "" || strings.Contains(got.URL.String(), "=2") && want.Status != 0 && !strings.Contains(text, "?")) {
			t.Errorf("%s: URL %s", text, got.URL)
		}
	}
}

// Bad input is refused, and the message says what is wrong with it.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"": "no condition", "nonsense": "no condition", "output": "nothing behind it", "output:": "nothing behind it", "notify:x": "takes nothing",
		"fd:2": "from 3 to 255", "fd:256": "from 3 to 255", "fd:x": "from 3 to 255", "fd:-1": "from 3",
		"tcp:80": "no host", "tcp::80": "no host", "tcp:h": "HOST:PORT", "tcp:h:0": "no port", "tcp:h:65536": "no port", "tcp:h:http": "no port",
		"tcp:::1:80": "HOST:PORT", "tcp:[x:y]:80": "no IPv6", "tcp:a b:80": "no host",
		"unix:@": "needs a name", "unix:/" + strings.Repeat("x", 107): "at most 107",
		"http:localhost": "want http://", "http:ftp://h/": "want http://", "http://": "want http://", "http://h:x/": "invalid port",
		"http://h/=999": "no HTTP status", "http://u:p@h/": "not sent", "http://unix::/x": "want http://unix:", "http://unix:/s:x": "want http://unix:",
		"file:": "nothing behind it", "exec:": "nothing behind it", "exec:a\x00b": "NUL",
	} {
		if c, err := Parse(text, "/d"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", text, c, err, want)
		}
	}
	if _, err := ParseAll([]string{"fd:3", "fd:4", "fd:3"}, "/"); err == nil || !strings.Contains(err.Error(), "before") {
		t.Errorf("twice the same descriptor: %v", err)
	}
	if _, err := ParseAll(make([]string, MaxConds+1), "/"); err == nil {
		t.Error("too many")
	}
}

// The pause between two tries: from 1 ms, never more than 100 ms, nor than about
// a tenth of the time waited.
func TestPause(t *testing.T) {
	var waited time.Duration
	tries := 0
	for ; waited < time.Minute; tries++ {
		p := pause(waited)
		if p < firstPause || p > lastPause || p > firstPause && p > waited/10 {
			t.Fatalf("after %v a pause of %v", waited, p)
		}
		if waited <= 100*time.Millisecond && p > 7*time.Millisecond {
			t.Fatalf("after %v a pause of %v", waited, p)
		}
		waited += p
	}
	if tries > 1000 {
		t.Errorf("%d tries in a minute", tries)
	}
}

func TestParseMessage(t *testing.T) {
	m, err := ParseMessage([]byte("READY=1\nSTATUS=Serving: a=b\nMAINPID=42\nWATCHDOG_USEC=2000000\nEXTEND_TIMEOUT_USEC=1\nX_ANY=thing\n"))
	if err != nil || !m.Ready || m.Status == nil || *m.Status != "Serving: a=b" || m.MainPID != 42 || m.Watchdog != 2*time.Second || m.Extend != time.Microsecond {
		t.Errorf("%+v, %v", m, err)
	}
	m, err = ParseMessage([]byte("READY=0\nWATCHDOG_USEC=0\nSTATUS=\xff" + strings.Repeat("é", 400)))
	if err != nil || m.Ready || m.Watchdog >= 0 || len(*m.Status) > maxStatus || !strings.HasPrefix(*m.Status, "\ufffdé") || !strings.HasSuffix(*m.Status, "é") {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []string{"", "\n", "READY", "=1", "a=1", "READY=1\x00", "MAINPID=0", "MAINPID=-1", "MAINPID=99999999999", "WATCHDOG_USEC=", "EXTEND_TIMEOUT_USEC=1s", "READY=1\nnonsense"} {
		if m, err := ParseMessage([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, m)
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte("READY=1\nSTATUS=x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := ParseMessage(b); err == nil && m.Status != nil && len(*m.Status) > maxStatus {
			t.Errorf("%+v", m)
		}
	})
}
