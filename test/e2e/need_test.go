//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// envNoSkip makes a missing tool a failure: CI installs them all, so that
// nothing is skipped there unseen.
const envNoSkip = "PROCSUP_NO_SKIP"

// need skips a test whose tools are not there.
func need(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		if os.Getenv(envNoSkip) != "" {
			t.Fatalf("%s is not installed", tool)
		}
		t.Skipf("%s is not installed", tool)
	}
}

// cmdNeed is need for scripts: need TOOL… .
func cmdNeed(ts *testscript.TestScript, neg bool, tools []string) {
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		if neg || os.Getenv(envNoSkip) != "" {
			ts.Fatalf("%s is not installed", tool)
		}
		stageOf(ts).t.Skip(tool + " is not installed")
	}
}
