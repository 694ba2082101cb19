package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"procsup/platform"
	"procsup/supervisor/client"
)

const completionHelp = `Prints a script that completes procsup's verbs, flags, handles (ids and names),
sessions and signals. Behind "run", "start" and the like it completes commands
and files as the shell does.

Examples:
   source <(procsup completion bash)                                   in ~/.bashrc
   procsup completion zsh > "${fpath[1]}/_procsup"
   procsup completion fish > ~/.config/fish/completions/procsup.fish`

const completeVerb = "__complete"

// The scripts ask `procsup __complete WORD…` with the words up to the cursor.
// Each line of the answer is a word, a tab and what it is; a line ":command"
// says that a command line begins at the word of that number, ":file" that a
// file is wanted.
var completionScripts = map[string]string{
	"bash": `# bash completion of procsup
_procsup() {
	local cur=${COMP_WORDS[COMP_CWORD]} line
	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
		:command*)
			if declare -F _command_offset >/dev/null; then
				_command_offset "${line#:command }"
			else
				COMPREPLY=($(compgen -A command -A file -- "$cur"))
			fi
			return ;;
		:file) COMPREPLY=($(compgen -A file -- "$cur")); compopt -o filenames 2>/dev/null; return ;;
		*) COMPREPLY+=("${line%%$'\t'*}") ;;
		esac
	done < <(procsup __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _procsup procsup
`,
	"zsh": `#compdef procsup
_procsup() {
	local line
	local -a found
	while IFS= read -r line; do
		case $line in
		:command*)
			shift $(( ${line#:command } )) words
			(( CURRENT -= ${line#:command } ))
			_normal
			return ;;
		:file) _files; return ;;
		*) found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
		esac
	done < <(procsup __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
	_describe procsup found
}
if [ "$funcstack[1]" = _procsup ]; then _procsup "$@"; else compdef _procsup procsup; fi
`,
	"fish": `# fish completion of procsup
function __procsup_complete
	set -l words (commandline -opc)[2..-1] (commandline -ct)
	for line in (procsup __complete -- $words 2>/dev/null)
		switch $line
			case ':command*'
				set -l n (string replace ':command ' '' -- $line)
				complete -C (string join -- ' ' (string escape -- $words[$n..-1]))
			case ':file'
				__fish_complete_path (commandline -ct)
			case '*'
				printf '%s\n' $line
		end
	end
end
complete -c procsup -f -a '(__procsup_complete)'
`,
}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a script that completes procsup in a shell", ArgsUsage: "bash|zsh|fish", Description: completionHelp,
		OnUsageError: onUsageError, HideHelpCommand: true,
		Action: func(c *cli.Context) error {
			script, ok := completionScripts[c.Args().First()]
			if !ok || c.NArg() != 1 {
				return usagef("completion: name one shell: bash, zsh or fish")
			}
			_, err := fmt.Fprint(c.App.Writer, script)
			return err
		},
	}
}

// complete answers a completion script. It never starts a daemon and never
// says what is wrong: there is nobody to read it.
func complete(app *cli.App, words []string) {
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	q := completing{app: app, words: words, cur: words[len(words)-1]}
	for _, line := range q.lines() {
		fmt.Fprintln(app.Writer, line)
	}
}

// completing is one question of a script.
type completing struct {
	app   *cli.App
	words []string // up to the cursor, without procsup
	cur   string   // the last of them, being typed
}

func (q completing) lines() []string {
	if len(q.words) == 1 {
		return q.offer(verbWords(q.app.VisibleCommands()))
	}
	cmd, at := q.app.Command(q.words[0]), 1
	if cmd == nil {
		return nil
	}
	if subs := visible(cmd.Subcommands); len(subs) > 0 {
		if len(q.words) == 2 {
			return q.offer(verbWords(subs))
		}
		if cmd, at = cmd.Command(q.words[1]), 2; cmd == nil {
			return nil
		}
	}
	args := 0 // words behind the verb that are no flags
	for i := at; i < len(q.words)-1; i++ {
		w := q.words[i]
		switch {
		case w == "--" && takesCommand(cmd):
			return []string{fmt.Sprintf(":command %d", i+2)} // counted with procsup itself
		case strings.HasPrefix(w, "-") && len(w) > 1 && takesValue(cmd, w):
			if i == len(q.words)-2 {
				return q.value(strings.TrimLeft(w, "-"))
			}
			i++
		case strings.HasPrefix(w, "-") && len(w) > 1:
		case beginsCommand(cmd):
			return []string{fmt.Sprintf(":command %d", i+1)}
		default:
			args++
		}
	}
	if strings.HasPrefix(q.cur, "-") {
		return q.offer(flagWords(cmd))
	}
	return q.argument(cmd, args)
}

// argument completes a word that is no flag.
func (q completing) argument(cmd *cli.Command, n int) []string {
	switch {
	case cmd.Name == "await":
		return q.offer([]string{"tcp:\tHOST:PORT", "unix:\tPATH", "http://\tURL", "https://\tURL", "file:\tPATH", "exec:\tCMD"})
	case beginsCommand(cmd):
		return []string{fmt.Sprintf(":command %d", len(q.words))}
	case cmd.Name == "signal" && n == 1:
		return q.offer(signalWords())
	case strings.HasPrefix(cmd.ArgsUsage, "HANDLE") && (n == 0 || strings.Contains(cmd.ArgsUsage, "HANDLE…")):
		return q.offer(q.handles(cmd))
	case cmd.Name == "completion" && n == 0:
		return q.offer([]string{"bash\t", "zsh\t", "fish\t"})
	case strings.Contains(cmd.ArgsUsage, "NAME") && n == 0 && len(q.words) > 2 && q.words[0] == "session":
		return q.offer(q.sessions())
	case strings.Contains(cmd.ArgsUsage, "FILE"):
		return []string{":file"}
	}
	return nil
}

// value completes the value of a flag.
func (q completing) value(flag string) []string {
	switch flag {
	case "session", "S":
		return q.offer(q.sessions())
	case "signal", "stop-signal":
		return q.offer(signalWords())
	case "lease":
		return q.offer([]string{"awaited\t", "service\t"})
	case "kind":
		return q.offer([]string{"command\t", "test\t", "build\t"})
	case "leftover":
		return q.offer([]string{"kill\t", "wait\t", "keep\t"})
	case "containment":
		return q.offer([]string{"auto\t", "cgroup\t", "tree\t", "group\t"})
	case "env-mode":
		return q.offer([]string{"inherit\t", "minimal\t", "empty\t"})
	case "dir", "socket", "state", "capture", "result", "events-to", "stdin":
		return []string{":file"}
	}
	return nil
}

// offer keeps what begins as the word being typed.
func (q completing) offer(words []string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, q.cur) })
}

func takesCommand(cmd *cli.Command) bool { return strings.Contains(cmd.ArgsUsage, "CMD") }

// beginsCommand reports whether the first word that is no flag begins a command.
func beginsCommand(cmd *cli.Command) bool { return takesCommand(cmd) && cmd.Name != "await" }

func verbWords(cmds []*cli.Command) (out []string) {
	for _, c := range visible(cmds) {
		out = append(out, c.Name+"\t"+c.Usage)
	}
	return out
}

func flagWords(cmd *cli.Command) (out []string) {
	for _, f := range cmd.VisibleFlags() {
		usage := ""
		if d, ok := f.(cli.DocGenerationFlag); ok {
			usage = strings.ReplaceAll(d.GetUsage(), "`", "")
		}
		for _, n := range f.Names() {
			if len(n) > 1 {
				out = append(out, "--"+n+"\t"+usage)
			}
		}
	}
	return out
}

func signalWords() (out []string) {
	for _, name := range []string{"TERM", "INT", "HUP", "QUIT", "KILL", "USR1", "USR2", "STOP", "CONT", "WINCH", "ALRM"} {
		if _, err := platform.ParseSignal(name); err == nil {
			out = append(out, name+"\t")
		}
	}
	return out
}

// completeTime bounds how long a completion waits for the daemon.
const completeTime = 500 * time.Millisecond

// daemon is the daemon that the words so far speak of.
func (q completing) daemon() (*client.Client, context.Context, context.CancelFunc) {
	at := func(flag string) string {
		for i, w := range q.words[:len(q.words)-1] {
			if v, ok := strings.CutPrefix(w, "--"+flag+"="); ok {
				return v
			}
			if w == "--"+flag {
				return q.words[i+1]
			}
		}
		return ""
	}
	socket, err := platform.SocketPath(at("socket"))
	if err != nil {
		return nil, nil, nil
	}
	state, _ := platform.StateDir(at("state")) // "" = it is not looked for
	ctx, cancel := context.WithTimeout(context.Background(), completeTime)
	return client.New(client.Config{Socket: socket, State: state, Patience: -1}), ctx, cancel
}

// handles are names and ids: for verbs that act on what lives, only those.
func (q completing) handles(cmd *cli.Command) (out []string) {
	c, ctx, cancel := q.daemon()
	if c == nil {
		return nil
	}
	defer c.Close()
	defer cancel()
	live := slices.Contains([]string{"cancel", "signal", "send", "wait", "wait-output", "wait-ready", "events"}, cmd.Name)
	l, err := c.List(ctx, client.Filter{Live: live, Limit: 200})
	if err != nil {
		return nil
	}
	for _, h := range l.Handles {
		about := string(h.Status) + ": " + plain(h.Descriptor, 60)
		if h.Name != "" {
			out = append(out, h.Name+"\t"+about)
		}
		out = append(out, string(h.HandleID)+"\t"+about)
	}
	return out
}

func (q completing) sessions() (out []string) {
	c, ctx, cancel := q.daemon()
	if c == nil {
		return nil
	}
	defer c.Close()
	defer cancel()
	l, err := c.Sessions(ctx, false)
	if err != nil {
		return nil
	}
	for _, s := range l.Sessions {
		out = append(out, fmt.Sprintf("%s\t%d live, %d owed", s.Name, s.Live, s.Pending))
	}
	return out
}
