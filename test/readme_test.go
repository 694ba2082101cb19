package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// A block is a fenced block of the README with the output shown under it.
type block struct {
	lang, text string
	want       string // of a ```text block right below; empty: any
}

func readmeBlocks(t *testing.T) (blocks []block) {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	fence := regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	end := -1
	for _, m := range fence.FindAllStringSubmatchIndex(string(readme), -1) {
		lang, text := string(readme[m[2]:m[3]]), string(readme[m[4]:m[5]])
		if lang == "text" && m[0] == end+1 && len(blocks) > 0 {
			blocks[len(blocks)-1].want = text
		} else {
			blocks = append(blocks, block{lang: lang, text: text})
		}
		end = m[1]
	}
	return blocks
}

// TestReadme runs every command of the README and compares the output shown.
func TestReadme(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the README is about Linux")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-o", bin, "procsup/cmd/procsup", "procsup/cmd/procsupd")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	env := append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GOBIN="+t.TempDir(), "HOME="+dir, "GOPATH="+goEnv(t, "GOPATH"), "GOCACHE="+goEnv(t, "GOCACHE"))
	state, err := os.MkdirTemp("", "pr") // short: a socket's path must fit
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(state)
	env = append(env, "PROCSUP_SOCKET="+state+"/sock", "PROCSUP_STATE="+state+"/state", "PROCSUP_SESSION=")
	defer func() { // the README stops its daemon; not if a block before failed
		stop := exec.Command(filepath.Join(bin, "procsup"), "daemon", "--stop")
		stop.Env = env
		_ = stop.Run()
	}()
	ran := 0
	for _, b := range readmeBlocks(t) {
		cmd := exec.Command("sh", "-ec", b.text)
		cmd.Dir = dir
		switch {
		case b.lang == "go":
			file := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(file, []byte(b.text), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd = exec.Command("go", "run", file)
			cmd.Dir = root
		case b.lang != "sh":
			continue
		case strings.TrimSpace(b.text) == "go test ./...":
			checkCI(t, "go test ./...") // it would run itself here; CI does
			continue
		case missing(t, b.text, "redis-server", "redis-cli"):
			continue
		case strings.Contains(b.text, "./cmd/"):
			cmd.Dir = root
		}
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil || b.want != "" && string(out) != b.want {
			t.Errorf("%s\n%v, prints\n%s\nthe README shows\n%s", b.text, err, out, b.want)
		}
		ran++
	}
	if ran < 5 {
		t.Errorf("only %d blocks found in the README", ran)
	}
}

// missing tells whether a block needs a tool that is not there. With
// PROCSUP_NO_SKIP that is a failure: CI installs them all.
func missing(t *testing.T, text string, tools ...string) bool {
	t.Helper()
	for _, tool := range tools {
		if !strings.Contains(text, tool) {
			continue
		}
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("PROCSUP_NO_SKIP") != "" {
				t.Fatalf("%s is not installed", tool)
			}
			t.Logf("not run, %s is not installed:\n%s", tool, text)
			return true
		}
	}
	return false
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func checkCI(t *testing.T, command string) {
	t.Helper()
	ci, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(ci), command) {
		t.Errorf(".ci/run does not run %q, which the README gives", command)
	}
}
