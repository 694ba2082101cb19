package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// ownArguments are the verbs whose arguments are somebody else's command line:
// there flags end at the first word.
var ownArguments = []string{"run", "start", "with", "await", "daemon", "lint"}

// flagsFirst lets flags of a verb come behind its arguments, as in
// `procsup wait H --timeout 1s`, which the package does not do by itself.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) < 3 || slices.Contains(ownArguments, args[1]) {
		return args
	}
	cmd, at := app.Command(args[1]), 2
	if cmd == nil {
		return args
	}
	if len(cmd.Subcommands) > 0 {
		if cmd, at = cmd.Command(args[2]), 3; cmd == nil {
			return args
		}
	}
	if asksHelp(cmd, args[at:]) {
		return append(slices.Clone(args[:at]), "--help")
	}
	var flags, rest []string
	for i := at; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		flags = append(flags, a)
		if takesValue(cmd, a) && i+1 < len(args) {
			i++
			flags = append(flags, args[i])
		}
	}
	out := append(slices.Clone(args[:at]), flags...)
	return append(append(out, "--"), rest...)
}

// asksHelp reports whether --help is among the words before --: as an argument
// before it would be taken for a verb.
func asksHelp(cmd *cli.Command, args []string) bool {
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		switch a := args[i]; {
		case a == "--help" || a == "-h":
			return true
		case len(a) > 1 && a[0] == '-' && takesValue(cmd, a):
			i++
		}
	}
	return false
}

// takesValue reports whether the word behind a flag is its value.
func takesValue(cmd *cli.Command, flag string) bool {
	name := strings.TrimLeft(flag, "-")
	if strings.Contains(name, "=") {
		return false
	}
	for _, f := range cmd.Flags {
		if slices.Contains(f.Names(), name) {
			_, is := f.(*cli.BoolFlag)
			return !is
		}
	}
	return false
}
