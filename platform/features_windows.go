package platform

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// examine says what Windows lacks; nothing is probed.
func examine(cfg ProbeConfig, r *Report) {
	v := windows.RtlGetVersion()
	r.Kernel = fmt.Sprintf("%d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber)
	r.Containment = ByChild
	r.Why = "Windows has no process groups of the Unix kind: only the direct child is ended, best effort"
	r.Better = []string{"run procsup on Linux, for example in WSL 2"}
	r.Weaker = []string{
		"only the direct child is ended: what it started may survive",
		"no signals: a stop is a kill",
		"no splice and no keeper: a kill of the supervisor loses output and ends",
		"the terminal is not handed over",
		"unix sockets do not say who connects",
	}
	r.Features = []Feature{
		{Name: "process_groups", Detail: "none of the Unix kind"},
		{Name: "cgroup2", Detail: "Linux only"},
		{Name: "subreaper", Detail: "Linux only"},
		{Name: "pidfd_open", Detail: "Linux only"},
		{Name: "splice", Detail: "Linux only"},
		{Name: "terminal", Detail: "hand-over is built for Linux only"},
		{Name: "peer_credentials", Detail: "not on Windows"},
	}
}
