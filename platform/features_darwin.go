package platform

import "golang.org/x/sys/unix"

// examine says what macOS lacks; nothing is probed.
func examine(cfg ProbeConfig, r *Report) {
	r.Kernel, _ = unix.Sysctl("kern.osrelease")
	r.Containment = ByGroup
	r.Why = "macOS has neither cgroups nor a subreaper: a process that leaves its group (setsid, a daemon) is not found"
	r.Better = []string{"run procsup on Linux, for example in a container or virtual machine"}
	r.Weaker = []string{
		"containment is the process group: what leaves it survives",
		"no pidfd: a process is named by its number",
		"no splice: a SIGKILL of the supervisor may lose bytes it had just read",
		"no keeper: commands do not survive the supervisor's death with their output",
		"the terminal is not handed over",
		"death by signal is shown as exit code 128+n",
	}
	r.Capabilities = Capabilities{GroupKill: true, PeerIdentity: true}
	r.Features = []Feature{
		{Name: "process_groups", OK: true, Detail: "a signal reaches the whole group"},
		{Name: "cgroup2", Detail: "Linux only"},
		{Name: "subreaper", Detail: "Linux only"},
		{Name: "pidfd_open", Detail: "Linux only"},
		{Name: "splice", Detail: "Linux only"},
		{Name: "terminal", Detail: "hand-over is built for Linux only"},
		{Name: "peer_credentials", OK: true, Detail: "LOCAL_PEERCRED"},
	}
}
