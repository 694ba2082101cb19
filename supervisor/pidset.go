package supervisor

import "sync"

// A pidSet is asked by many goroutines, for each of thousands of processes.
type pidSet struct {
	mu   sync.RWMutex
	pids map[int]bool
}

func (p *pidSet) add(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pids == nil {
		p.pids = map[int]bool{}
	}
	p.pids[pid] = true
}

func (p *pidSet) remove(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pids, pid)
}

func (p *pidSet) has(pid int) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.pids[pid]
}
