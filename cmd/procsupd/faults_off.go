//go:build !procsup_faults

package main

import "procsup/supervisor"

// faults are for tests, which build with the tag procsup_faults.
func faults() *supervisor.Hooks { return nil }
