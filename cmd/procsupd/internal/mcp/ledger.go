package mcp

import (
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// listening is a request that stays open until it is cancelled.
const listening = "subscriptions/listen"

// A ledger has the requests that were read and not answered yet. The SDK drops
// answers that are still being made when its input ends
// (github.com/modelcontextprotocol/go-sdk issue 1061), so that `procsup mcp
// <requests` would say nothing: the end of the input is held back until every
// request has its answer. It also keeps batches together, and refuses an id
// that is in use, which the SDK never answers.
type ledger struct {
	mu    sync.Mutex
	open  map[jsonrpc.ID]*batch // nil: on its own
	owed  int                   // of open, those that hold back the end
	quiet map[jsonrpc.ID]bool   // of open, the others
	bell  chan struct{}         // closed when nothing is owed; nil: nobody waits
}

// A batch is the answers to requests that came as one array.
type batch struct {
	left    int // requests without an answer, and one until it is read
	answers []json.RawMessage
}

func newLedger() *ledger {
	return &ledger{open: map[jsonrpc.ID]*batch{}, quiet: map[jsonrpc.ID]bool{}}
}

// enter notes a request. It is false when its id is in use.
func (l *ledger) enter(id jsonrpc.ID, method string, b *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, used := l.open[id]; used {
		return false
	}
	l.open[id] = b
	if b != nil {
		b.left++
	}
	if method == listening {
		l.quiet[id] = true
	} else {
		l.owed++
	}
	return true
}

// answered gives what is to be written now that a request has its answer: the
// answer, the batch that it completes, or nothing yet. written is to be called
// once that was written.
func (l *ledger) answered(id jsonrpc.ID, answer []byte) (line []byte, written func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.open[id]
	if !known {
		return answer, func() {}
	}
	delete(l.open, id)
	counts := !l.quiet[id]
	delete(l.quiet, id)
	written = func() {
		if counts {
			l.settle()
		}
	}
	if b == nil {
		return answer, written
	}
	b.answers = append(b.answers, answer)
	b.left--
	return b.whole(), written
}

// add puts an answer into a batch that is still being read.
func (l *ledger) add(b *batch, answer []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.answers = append(b.answers, answer)
}

// complete says that a batch was read to its end, and gives what is to be
// written if all of it has its answer.
func (l *ledger) complete(b *batch) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.left--
	return b.whole()
}

// whole is the batch once nothing of it is left and there is something to say.
func (b *batch) whole() []byte {
	if b.left > 0 || len(b.answers) == 0 {
		return nil
	}
	line, err := json.Marshal(b.answers)
	if err != nil {
		panic("marshal batch: " + err.Error()) // each was marshalled
	}
	return line
}

func (l *ledger) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owed--; l.owed == 0 && l.bell != nil {
		close(l.bell)
		l.bell = nil
	}
}

// settled is closed when every request that was entered has its answer.
func (l *ledger) settled() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owed == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if l.bell == nil {
		l.bell = make(chan struct{})
	}
	return l.bell
}
