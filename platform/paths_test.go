package platform

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var pathVars = []string{"HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "PROCSUP_STATE", "PROCSUP_SOCKET"}

// setVars sets these variables and empties the others that count.
func setVars(t *testing.T, vars map[string]string) {
	t.Helper()
	for _, name := range pathVars {
		t.Setenv(name, vars[name])
	}
}

func TestStateDir(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		flag string
		vars map[string]string
		want string
		err  error
	}{
		"flag first":           {"/f", map[string]string{"PROCSUP_STATE": "/p", "HOME": "/h"}, "/f", nil},
		"relative flag":        {"f/../g", nil, filepath.Join(wd, "g"), nil},
		"variable":             {"", map[string]string{"PROCSUP_STATE": "/p", "XDG_STATE_HOME": "/x"}, "/p", nil},
		"XDG":                  {"", map[string]string{"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/procsup", nil},
		"relative XDG":         {"", map[string]string{"XDG_STATE_HOME": "x", "HOME": "/h"}, "/h/.local/state/procsup", nil},
		"home":                 {"", map[string]string{"HOME": "/h"}, "/h/.local/state/procsup", nil},
		"nothing":              {"", nil, "", ErrNoStateDir},
		"home that is no path": {"", map[string]string{"HOME": "h"}, "", ErrNoStateDir},
	} {
		t.Run(name, func(t *testing.T) {
			setVars(t, tt.vars)
			got, err := StateDir(tt.flag)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%q, %v; want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestSocketPath(t *testing.T) {
	ours := t.TempDir()
	long := "/" + strings.Repeat("x", maxSocketPath)
	for name, tt := range map[string]struct {
		flag string
		vars map[string]string
		want string
		err  error
	}{
		"flag first":           {"/f/s", map[string]string{"PROCSUP_SOCKET": "/p"}, "/f/s", nil},
		"variable":             {"", map[string]string{"PROCSUP_SOCKET": "/p", "XDG_RUNTIME_DIR": ours}, "/p", nil},
		"runtime folder":       {"", map[string]string{"XDG_RUNTIME_DIR": ours}, ours + "/procsup/sock", nil},
		"another's runtime":    {"", map[string]string{"XDG_RUNTIME_DIR": "/no/such"}, sharedDir() + "/sock", nil},
		"relative runtime":     {"", map[string]string{"XDG_RUNTIME_DIR": "."}, sharedDir() + "/sock", nil},
		"too long":             {long, nil, long, ErrSocketTooLong},
		"as long as can be":    {long[:maxSocketPath], nil, long[:maxSocketPath], nil},
		"too long by variable": {"", map[string]string{"PROCSUP_SOCKET": long}, long, ErrSocketTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			setVars(t, tt.vars)
			got, err := SocketPath(tt.flag)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%q, %v; want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

// A socket folder that anyone could have put there is not believed.
func TestSocketFolderIsChecked(t *testing.T) {
	base := t.TempDir()
	setVars(t, map[string]string{"XDG_RUNTIME_DIR": base})
	dir := filepath.Join(base, "procsup")
	sock := filepath.Join(dir, "sock")
	wantBoth := func(what string, want error) {
		t.Helper()
		if _, err := SocketPath(""); !errors.Is(err, want) {
			t.Errorf("%s: path: %v, want %v", what, err, want)
		}
		if err := MakeSocketDir(sock); !errors.Is(err, want) {
			t.Errorf("%s: make: %v, want %v", what, err, want)
		}
	}
	wantBoth("missing", nil)
	wantBoth("just made", nil)
	if fi, err := os.Stat(dir); err != nil || modesCount && fi.Mode().Perm() != 0o700 {
		t.Errorf("made with %v, %v", fi.Mode(), err)
	}
	if !modesCount {
		return
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(dir, 0o750))
	wantBoth("open to the group", ErrUntrustedFolder)
	must(os.Remove(dir))
	must(os.Symlink(base, dir))
	wantBoth("symbolic link", ErrUntrustedFolder)
	must(os.Remove(dir))
	must(os.WriteFile(dir, nil, 0o700))
	wantBoth("file", ErrUntrustedFolder)
	must(os.Remove(dir))
	must(os.Mkdir(dir, 0o700))
	if os.Geteuid() == 0 {
		must(os.Chown(dir, 65432, 65432))
		wantBoth("another user's", ErrUntrustedFolder)
	}
	if err := MakeSocketDir(filepath.Join(base, "named", "by", "user", "sock")); err != nil {
		t.Errorf("a folder that the user named: %v", err)
	}
}
