package supervisor

import (
	"os"
	"strings"

	"procsup/capture"
	"procsup/platform"
	"procsup/supervisor/keeper"
	"procsup/supervisor/outcome"
)

// A plumbing is the files of a run before the spawn.
type plumbing struct {
	child [3]*os.File     // the command's 0, 1, 2
	null  *os.File        // the supervisor's, which stays open
	more  []numbered      // and further ones of the command
	pipes []*capture.Pipe // read ends, until they are the log's
	ours  []*os.File      // what else we have of it
	// held is for the keeper: read ends of the pipes, the notify socket, the read
	// ends of fd:N, and last, as it may be closed first, the write end of stdin.
	// reattach knows them by this order.
	held []keeper.Descriptor
}

// keep makes f one of ours that the keeper holds.
func (p *plumbing) keep(f *os.File) error {
	p.ours = append(p.ours, f)
	held, err := f.SyscallConn()
	p.held = append(p.held, held)
	return err
}

func (p *plumbing) closeChild() {
	for i, f := range p.child {
		if f != nil && f != p.null && !(i == 2 && f == p.child[1]) {
			f.Close()
		}
	}
	for _, m := range p.more {
		m.file.Close()
	}
}

// A numbered is a descriptor that the command gets under a number of its own.
type numbered struct {
	n    int
	file *os.File
}

// further are those beyond 2, as pgroup takes them.
func (p *plumbing) further() map[int]*os.File {
	files := map[int]*os.File{}
	for _, m := range p.more {
		files[m.n] = m.file
	}
	return files
}

// prepare makes the spools and pipes and registers them with the keeper.
func (s *Supervisor) prepare(r *run) (p *plumbing, f *outcome.Failure) {
	name := r.spec.Command[0]
	fail := func(step, path string, err error) (*plumbing, *outcome.Failure) {
		return nil, outcome.Fail(outcome.ExitProcsup, step, err, path, "start %s: %s %s: %v", name, step, path, err)
	}
	log, err := capture.Open(s.captureConfig(r))
	if err != nil {
		return fail("capture", s.dir(r.id), err)
	}
	s.mu.Lock() // others read the run's state while it starts
	r.log = log
	r.ring() // for who wants to read it
	s.mu.Unlock()
	p = &plumbing{null: s.null}
	made := p
	defer func() {
		if f != nil { // at the limit of descriptors nobody should wait for a finalizer
			made.closeChild()
			closeAll(made.ours)
			for _, in := range made.pipes {
				in.Close()
			}
		}
	}()
	sources := r.sources()
	for _, src := range sources {
		ours, theirs, err := capture.NewPipe()
		if err != nil {
			return fail("pipe", src.String(), err)
		}
		p.child[1+int(src)] = theirs
		p.pipes, p.held = append(p.pipes, ours), append(p.held, ours)
	}
	if r.spec.Merge {
		p.child[2] = p.child[1]
	}
	if err := r.ready.open(p); err != nil {
		return fail("ready", strings.Join(r.spec.Ready, ", "), err)
	}
	if err := s.openStdin(r, p); err != nil {
		return fail("stdin", r.spec.Stdin, err)
	}
	s.hook("piped", r)
	if s.cfg.Keeper != nil {
		if err := s.cfg.Keeper.RegisterMarked(string(r.id), string(r.id), platform.MarkFor(string(r.id)), p.held); err != nil {
			return fail("register", "with the keeper", err)
		}
	}
	s.hook("registered", r)
	for _, src := range sources {
		in := p.pipes[0]
		p.pipes = p.pipes[1:]
		if err := r.log.AttachPipe(src, in); err != nil {
			return fail("capture", src.String(), err)
		}
	}
	s.hook("prepared", r)
	return p, nil
}

// sources are the streams of a run, in the order of its pipes.
func (r *run) sources() []capture.Source {
	if r.spec.Merge {
		return []capture.Source{capture.Stdout}
	}
	return []capture.Source{capture.Stdout, capture.Stderr}
}

func (s *Supervisor) captureConfig(r *run) capture.Config {
	return capture.Config{Dir: s.dir(r.id), MaxOutput: r.spec.MaxOutput, Grown: s.grow, Quota: s.quota, Published: r.captured}
}

func (s *Supervisor) openStdin(r *run, p *plumbing) (err error) {
	switch r.spec.Stdin {
	case "", "null":
		p.child[0] = s.null
	case "pipe":
		var theirs, ours *os.File
		if theirs, ours, err = os.Pipe(); err != nil {
			return err
		}
		p.child[0] = theirs
		r.keepStdin(ours)
		return p.keep(ours)
	default:
		p.child[0], err = platform.OpenInput(r.spec.Stdin)
	}
	return err
}
