package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
)

const manHelp = `Prints the manual of procsup, or of one verb, as a man page. It is made of the
same text as --help. --all writes every page into a directory, for a package.

Examples:
   procsup man | man -l -
   procsup man start | man -l -
   procsup man session open | man -l -
   procsup man --all /usr/local/share/man/man1`

func manCommand() *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "print the manual of procsup or of a verb", ArgsUsage: "[VERB [VERB]]", Description: manHelp,
		OnUsageError: onUsageError, HideHelpCommand: true,
		Flags: []cli.Flag{&cli.StringFlag{Name: "all", Usage: "write all pages into `DIR`"}},
		Action: func(c *cli.Context) error {
			if dir := c.String("all"); dir != "" {
				return writePages(c.App, dir)
			}
			p, err := findPage(c.App, c.Args().Slice())
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.App.Writer, p.roff())
			return err
		},
	}
}

// A page is what one man page tells of.
type page struct {
	name  []string // procsup, or procsup and its verbs
	about string
	args  string
	text  string
	flags []cli.Flag
	verbs []*cli.Command
}

func pageOf(app *cli.App, path []string, cmd *cli.Command) page {
	p := page{name: append([]string{app.Name}, path...)}
	if cmd == nil {
		p.about, p.args, p.text, p.flags, p.verbs = app.Usage, "VERB [flags] …", app.Description, app.VisibleFlags(), app.VisibleCommands()
		return p
	}
	p.about, p.args, p.text, p.flags = cmd.Usage, "[flags] "+cmd.ArgsUsage, cmd.Description, cmd.VisibleFlags()
	p.verbs = visible(cmd.Subcommands)
	if args, ok := helpElsewhere[strings.Join(path, " ")]; ok {
		if text, err := helpOfDaemon(args); err == nil {
			p.text, p.flags = text, nil // it tells of them
		}
	}
	return p
}

// helpElsewhere are the verbs whose help is that of procsupd with these arguments.
var helpElsewhere = map[string][]string{"daemon": {"--help"}, "await": {"await", "--help"}}

// helpOfDaemon is a help without its line of usage, the examples last.
func helpOfDaemon(args []string) (string, error) {
	exe, err := findDaemon()
	if err != nil {
		return "", err
	}
	out, err := exec.Command(exe, args...).CombinedOutput()
	if err != nil {
		return "", err
	}
	_, text, _ := strings.Cut(string(out), "\n\n")
	before, rest, _ := strings.Cut(text, "Examples:\n")
	examples, after, _ := strings.Cut(rest, "\n\n")
	return before + after + "\nExamples:\n" + examples, nil // a page has them last
}

func visible(all []*cli.Command) (out []*cli.Command) {
	for _, c := range all {
		if !c.Hidden && c.Name != "help" {
			out = append(out, c)
		}
	}
	return out
}

// findPage is the page of a verb, and of a verb's verb.
func findPage(app *cli.App, path []string) (page, error) {
	if len(path) == 0 {
		return pageOf(app, nil, nil), nil
	}
	cmd := app.Command(path[0])
	for _, name := range path[1:] {
		if cmd != nil {
			cmd = cmd.Command(name)
		}
	}
	if cmd == nil || cmd.Hidden {
		return page{}, usagef("man: no verb %q; see procsup --help", strings.Join(path, " "))
	}
	return pageOf(app, path, cmd), nil
}

// writePages writes a page for procsup, each verb and each verb's verb.
func writePages(app *cli.App, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return unusable("man: %v", err)
	}
	pages := []page{pageOf(app, nil, nil)}
	for _, cmd := range visible(app.Commands) {
		pages = append(pages, pageOf(app, []string{cmd.Name}, cmd))
		for _, sub := range visible(cmd.Subcommands) {
			pages = append(pages, pageOf(app, []string{cmd.Name, sub.Name}, sub))
		}
	}
	for _, p := range pages {
		path := filepath.Join(dir, strings.Join(p.name, "-")+".1")
		if err := os.WriteFile(path, []byte(p.roff()), 0o644); err != nil {
			return unusable("man: %v", err)
		}
	}
	return nil
}

// roff writes the page in the macros of man(7).
func (p page) roff() string {
	var b strings.Builder
	title := strings.Join(p.name, "-")
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"procsup %s\" \"procsup\"\n", troffArg(strings.ToUpper(title)), version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escaped(title), escaped(p.about))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n%s\n", escaped(strings.Join(p.name, " ")), escaped(p.args))
	text, examples, _ := strings.Cut(p.text, "Examples:\n")
	if text = strings.TrimSpace(text); text != "" {
		b.WriteString(".SH DESCRIPTION\n" + paragraphs(text))
	}
	if len(p.verbs) > 0 {
		b.WriteString(".SH VERBS\n")
		for _, v := range visible(p.verbs) {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s; see\n.BR %s (1)\n", escaped(v.Name), escaped(v.Usage), escaped(title+"-"+v.Name))
		}
	}
	if len(p.flags) > 0 {
		b.WriteString(".SH OPTIONS\n")
		for _, f := range p.flags {
			b.WriteString(option(f))
		}
	}
	if examples != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n" + escaped(strings.TrimRight(examples, "\n ")) + "\n.fi\n")
	}
	if len(p.name) > 1 {
		b.WriteString(".SH SEE ALSO\n.BR procsup (1)\n")
	}
	return b.String()
}

// option is one flag with what --help says of it.
func option(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	usage, place := d.GetUsage(), ""
	if i := strings.IndexByte(usage, '`'); i >= 0 { // as the package marks the value
		if j := strings.IndexByte(usage[i+1:], '`'); j >= 0 {
			place = usage[i+1 : i+1+j]
			usage = usage[:i] + place + usage[i+j+2:]
		}
	}
	var names []string
	for _, n := range f.Names() {
		if len(n) == 1 {
			names = append(names, "-"+n)
		} else {
			names = append(names, "--"+n)
		}
	}
	head := strings.Join(names, ", ")
	if d.TakesValue() {
		if place == "" {
			place = "VALUE"
		}
		head += " " + place
	}
	if v := d.GetDefaultText(); d.TakesValue() && v != "" {
		usage += " (default: " + v + ")"
	}
	return fmt.Sprintf(".TP\n.B %s\n%s\n", escaped(head), escaped(usage))
}

// paragraphs sets text as it is; a table keeps its columns.
func paragraphs(text string) string {
	var b strings.Builder
	for i, para := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(para, " ") || strings.Contains(para, "\n ") {
			b.WriteString(".nf\n" + escaped(para) + "\n.fi\n")
		} else {
			b.WriteString(escaped(para) + "\n")
		}
	}
	return b.String()
}

// escaped is text that troff prints as it is, groff_char(7).
func escaped(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", "\\(ga", "^", `\(ha`, "~", `\(ti`, "…", "...", "·", `\(bu`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

func troffArg(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
