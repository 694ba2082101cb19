package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"procsup/platform"
)

const doctorHelp = `Each feature is used once, so that what a container, a seccomp filter or an old
kernel takes away shows. Nothing is left behind: no process, file or cgroup.

Containment is how surely all processes of a command are ended:
  cgroup  the kernel keeps the list: nothing gets away
  tree    descendants and orphans are followed, also out of their group
  group   the process group: what leaves it gets away
  child   only the command itself, best effort (Windows)

The exit code is 0 unless procsup cannot work here at all (125).

Examples:
  procsup doctor
  procsup doctor --json | jq -r .containment
  procsup doctor --json | jq .capabilities.group_kill
  procsup doctor --json | jq -r '.features[] | select(.ok | not) | .name'
  systemd-run --user --scope -p Delegate=yes procsup doctor`

// doctorCommand is `procsup doctor`: what of procsup works on this machine, and
// how to get what does not. Its only effect is its output.
func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:        "doctor",
		Usage:       "say what works on this machine, and how to get what does not",
		UsageText:   "procsup doctor [--json]",
		Description: doctorHelp,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print the report as JSON"},
		},
		Action: doctor,
	}
}

func doctor(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("doctor: unexpected argument %q; see procsup doctor --help", c.Args().First())
	}
	report := diagnose(c.String("state"), c.String("socket"))
	write := writeReport
	if c.Bool("json") {
		write = writeReportJSON
	}
	if err := write(c.App.Writer, report); err != nil {
		return unusable("doctor: write report: %v", err)
	}
	return verdict(report)
}

// verdict is nil unless procsup cannot work here at all: a weaker level is no error.
func verdict(r platform.Report) error {
	if r.Usable {
		return nil
	}
	return unusable("cannot work here: %s", strings.Join(r.Problems, "; "))
}

// diagnose is the report of the platform with the two paths that this user's
// environment and flags lead to.
func diagnose(stateFlag, socketFlag string) platform.Report {
	state, stateErr := platform.StateDir(stateFlag)
	socket, socketErr := platform.SocketPath(socketFlag)
	cfg := platform.ProbeConfig{Dir: state}
	if exe, err := os.Executable(); err == nil {
		cfg.Helper = []string{exe, "--help"}
	}
	report := platform.Examine(cfg)
	report.Features = append(report.Features,
		pathFeature("state_folder", state, stateErr), pathFeature("socket", socket, socketErr))
	return report
}

func pathFeature(name, path string, err error) platform.Feature {
	if err != nil {
		return platform.Feature{Name: name, Detail: err.Error()}
	}
	return platform.Feature{Name: name, OK: true, Detail: path}
}

func writeReportJSON(w io.Writer, r platform.Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// writeReport prints for people: the level first, then what it rests on.
func writeReport(w io.Writer, r platform.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s%s\n", "system", strings.TrimSpace(r.OS+"/"+r.Arch+" "+r.Kernel))
	fmt.Fprintf(&b, "%-14s%s\n", "containment", r.Containment)
	fmt.Fprintf(&b, "%-14s%s\n", "why", r.Why)
	writeList(&b, "better", r.Better)
	writeList(&b, "weaker here", r.Weaker)
	writeList(&b, "problems", r.Problems)
	fmt.Fprintln(&b, "\ncapabilities")
	c := r.Capabilities
	for _, row := range []struct {
		on         bool
		name, what string
	}{
		{c.GroupKill, "group_kill", "a signal reaches the whole process group"},
		{c.TreeKill, "tree_kill", "processes that left the group are found and ended"},
		{c.CgroupKill, "cgroup_kill", "the kernel ends all at once"},
		{c.Terminal, "terminal", "commands can be given the controlling terminal"},
		{c.CrashSafe, "crash_safe", "output and ends survive a SIGKILL of the supervisor"},
		{c.PeerIdentity, "peer_identity", "the daemon knows who connects"},
	} {
		writeRow(&b, row.on, row.name, row.what, "")
	}
	fmt.Fprintln(&b, "\nfeatures")
	for _, f := range r.Features {
		writeRow(&b, f.OK, f.Name, f.Detail, f.Hint)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeList(w io.Writer, name string, lines []string) {
	for i, line := range lines {
		if i > 0 {
			name = ""
		}
		fmt.Fprintf(w, "%-14s%s\n", name, line)
	}
}

func writeRow(w io.Writer, on bool, name, detail, hint string) {
	mark := "no"
	if on {
		mark = "ok"
	}
	fmt.Fprintf(w, "  %s  %-20s%s\n", mark, name, detail)
	if hint != "" {
		fmt.Fprintf(w, "  %s  %-20s→ %s\n", "  ", "", hint)
	}
}
