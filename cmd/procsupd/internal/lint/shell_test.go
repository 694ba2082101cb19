package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var levelOf = map[Verdict]Level{NoClean: Warning, NoTrap: Warning, WeakTrap: Warning, Broad: Warning, Sleep: Note, NoWait: Note, Unbounded: Note, Daemon: Note}

// verdicts are the different verdicts of a file, one that has not its usual
// level with that in front.
func verdicts(found []Finding) (words []string) {
	for _, f := range found {
		w := string(f.Verdict)
		if w == "" {
			w = f.Rule
		} else if f.Level != levelOf[f.Verdict] {
			w = string(f.Level) + ":" + w
		}
		if !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	slices.Sort(words)
	return words
}

// TestShapes: each file has the shape of a script that is public, in words of
// our own, and the verdicts that are right for it. S2-33.
func TestShapes(t *testing.T) {
	files, err := filepath.Glob("testdata/shell/*.sh")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m := regexp.MustCompile(`(?m)^# want: (.*)$`).FindSubmatch(src)
			if m == nil {
				t.Fatal("no # want: line")
			}
			want := strings.Fields(string(m[1]))
			slices.Sort(want)
			if want[0] == "CLEAN" {
				want = nil
			}
			found := Check(file, src, "")
			if got := verdicts(found); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
				for _, f := range found {
					t.Log(f)
				}
			}
			for _, f := range found {
				if f.Why == "" || f.Fix == "" || f.Line < 3 {
					t.Errorf("not whole: %+v", f)
				}
			}
		})
	}
}
