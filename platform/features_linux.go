package platform

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// examine probes Linux. The order is the order of the report.
func examine(cfg ProbeConfig, r *Report) {
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		r.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	home, cgroup, features := probeCgroup()
	if cgroup != nil {
		defer cgroup.Remove()
	}
	r.Features = append(features, probeChild(cfg.Helper, cgroup)...)
	r.Features = append(r.Features, probeSubreaper(), probeProc(), probeChildrenFiles())
	r.Features = append(r.Features, probeCloseRange(), probeNofile(), probePipeSize())
	r.Features = append(r.Features, probeFiles(cfg.Dir)...)
	r.Features = append(r.Features, probePeer()...)
	r.Features = append(r.Features, probeTerminal(), probePID(), probeUser(), probeCore())
	if f := r.Feature("pidfd_open"); !f.OK {
		r.Problems = append(r.Problems, "pidfd_open: "+f.Detail+"; "+f.Hint)
	}
	if f := r.Feature("proc"); !f.OK {
		r.Problems = append(r.Problems, "proc: "+f.Detail+"; "+f.Hint)
	}
	r.contain(home)
	r.Capabilities = Capabilities{
		GroupKill:    true,
		TreeKill:     r.Containment != ByGroup,
		CgroupKill:   r.Containment == ByCgroup,
		Terminal:     r.Feature("terminal").OK,
		CrashSafe:    r.Feature("splice").OK && r.Feature("subreaper").OK,
		PeerIdentity: r.Feature("peer_credentials").OK,
	}
}

// contain decides the level in force and says how to get a better one.
func (r *Report) contain(home CgroupHome) {
	missing := ""
	for _, name := range []string{"cgroup2", "cgroup_writable", "cgroup_clone", "cgroup_kill", "cgroup_events"} {
		if f := r.Feature(name); !f.OK {
			missing = name + ": " + f.Detail
			break
		}
	}
	if missing == "" {
		r.Containment = ByCgroup
		r.Why = "cgroups can be made in " + home.Base + ", commands start inside and the kernel ends them"
		return
	}
	r.Better = betterCgroup(home)
	for _, name := range []string{"subreaper", "proc"} {
		if f := r.Feature(name); !f.OK {
			r.Containment = ByGroup
			r.Why = name + ": " + f.Detail + " (and " + missing + ")"
			if f.Hint != "" {
				r.Better = append(r.Better, f.Hint)
			}
			return
		}
	}
	r.Containment = ByTree
	r.Why = missing
}

// betterCgroup says how to get to the cgroup level from where we are.
func betterCgroup(home CgroupHome) []string {
	var ways []string
	if home.Self == "" {
		ways = append(ways, "mount cgroup2 (the unified hierarchy; at boot: systemd.unified_cgroup_hierarchy=1)")
	}
	if unix.Access("/run/systemd/system", unix.F_OK) == nil {
		return append(ways,
			"one command: systemd-run --user --scope -p Delegate=yes procsup run -- CMD",
			"the daemon: a systemd user unit with Delegate=yes that runs `procsup daemon`",
			"or run procsup as root")
	}
	if unix.Geteuid() != 0 {
		return append(ways, "have a cgroup of your own delegated (its directory, cgroup.procs and cgroup.subtree_control owned by you), or run procsup as root")
	}
	return append(ways, "in a container: give it a private cgroup namespace with /sys/fs/cgroup mounted writable")
}

// feature is one that works when err is nil; the hint is dropped when it does.
func feature(name string, err error, detail, hint string) Feature {
	if err == nil {
		return Feature{Name: name, OK: true, Detail: detail}
	}
	return Feature{Name: name, Detail: plainErr(err), Hint: hint}
}

// plainErr makes the usual two refusals readable.
func plainErr(err error) string {
	switch {
	case errors.Is(err, unix.ENOSYS):
		return "the kernel lacks it, or a seccomp filter hides it (" + err.Error() + ")"
	case errors.Is(err, unix.EPERM):
		return "refused, perhaps by a seccomp filter (" + err.Error() + ")"
	}
	return err.Error()
}

// probeCgroup makes a cgroup if it can and returns it for the child's probe; the
// caller removes it.
func probeCgroup() (CgroupHome, *Cgroup, []Feature) {
	home, err := FindCgroup()
	found := feature("cgroup2", err, "", "")
	if err != nil {
		return home, nil, []Feature{found}
	}
	found.Detail = "mounted at " + home.Mount + ", we are in " + home.Path
	c, err := home.New(fmt.Sprintf("doctor-%d", os.Getpid()))
	writable := feature("cgroup_writable", err, home.Base, "")
	if err != nil {
		if home.Reason != "" {
			writable.Detail = home.Reason
		}
		return home, nil, []Feature{found, writable}
	}
	var killErr error
	if unix.Access(c.Path()+"/cgroup.kill", unix.W_OK) != nil {
		killErr = errors.New("no cgroup.kill: members are frozen and killed one by one")
	}
	kill := feature("cgroup_kill_file", killErr, "one write ends a whole run", "Linux 5.14")
	peakDetail := "the most memory a run used is known"
	_, err = c.MemoryPeak()
	if errors.Is(err, errors.ErrUnsupported) {
		err = errors.New("no memory.peak: the memory controller is not enabled for " + home.Path)
	}
	peak := feature("memory_peak", err, peakDetail, "Linux 5.19, and the memory controller in the parent's cgroup.subtree_control")
	return home, c, []Feature{found, writable, kill, peak}
}

// probeTerminal looks for a controlling terminal.
func probeTerminal() Feature {
	t, err := OpenTerminal()
	if err == nil {
		defer t.Close()
		if _, err = t.Foreground(); err == nil {
			return Feature{Name: "terminal", OK: true, Detail: "commands run in front can be given it"}
		}
	}
	return Feature{Name: "terminal", Detail: err.Error()}
}

// readLine reads the first line of a small file, "" when it cannot be read.
func readLine(path string) string {
	b, err := readFile(path, make([]byte, 256))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}
