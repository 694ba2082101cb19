package supervisor

import (
	"os"
	"testing"

	"procsup/test/say"
)

// TestMain lets the test binary be a command that notifies: say MESSAGE… .
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "say" {
		os.Exit(say.Main(os.Args[2:]))
	}
	os.Setenv("SELF", os.Args[0])
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}
