package main

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"

	"procsup/supervisor/keeper"
)

// A notifier tells a service manager how the daemon is doing, see sd_notify(3).
// The zero one tells nobody.
type notifier struct {
	socket   string
	watchdog time.Duration // how often it wants to hear of us at least; 0: not
	queue    chan string   // of background; nil: what is sent is waited for
	sent     chan struct{} // closed when the queue is
}

const (
	notifyVar = "NOTIFY_SOCKET"
	// notifyWait bounds the wait for a service manager that does not read.
	notifyWait = time.Second
)

// takeNotifier reads what the service manager has put into our environment and
// takes it out of there: it is not for supervisors and commands.
func takeNotifier() notifier {
	n := notifier{socket: os.Getenv(notifyVar)}
	var err error
	if n.watchdog, err = sdnotify.SdWatchdogEnabled(true); err != nil {
		fmt.Fprintln(os.Stderr, "procsupd: WATCHDOG_USEC:", err)
	}
	_ = os.Unsetenv(notifyVar)
	return n
}

// carry is the notifier for a keeper after us.
func (n notifier) carry() map[string]string {
	return map[string]string{"notify": n.socket, "watchdog": n.watchdog.String()}
}

func notifierOf(carry map[string]string) notifier {
	n := notifier{socket: carry["notify"]}
	n.watchdog, _ = time.ParseDuration(carry["watchdog"])
	return n
}

// background makes the notifier send in order and beside its caller, whom a
// service manager that does not read must not hold up. What does not fit into
// the queue is dropped.
func (n notifier) background() notifier {
	if n.socket != "" {
		n.queue, n.sent = make(chan string, 64), make(chan struct{})
		go func() { // ends by flush, or with the process
			defer close(n.sent)
			for m := range n.queue {
				n.write(m)
			}
		}()
	}
	return n
}

// flush waits for what was sent; nothing is sent afterwards.
func (n notifier) flush() {
	if n.queue == nil {
		return
	}
	close(n.queue)
	select {
	case <-n.sent:
	case <-time.After(notifyWait):
	}
}

func (n notifier) send(lines ...string) {
	m := strings.Join(lines, "\n")
	switch {
	case n.socket == "":
	case n.queue == nil:
		n.write(m)
	default:
		select {
		case n.queue <- m:
		default:
		}
	}
}

func (n notifier) write(m string) {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return // it is gone
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(notifyWait))
	_, _ = c.Write([]byte(m))
}

func (n notifier) alive() { n.send(sdnotify.SdNotifyWatchdog) }

// mainPID says that this process is the one to watch from now on. Before it is
// known the death of the keeper looks like that of the service.
func (n notifier) mainPID() {
	n.send(fmt.Sprintf("MAINPID=%d", os.Getpid()), "STATUS=the keeper was killed, its supervisor goes on in its place")
}

func (n notifier) stage(s keeper.Stage) {
	switch s {
	case keeper.Serving:
		n.send(sdnotify.SdNotifyReady, "STATUS=serving")
	case keeper.Replacing:
		n.send(sdnotify.SdNotifyReloading, strings.TrimSpace(sdnotify.SdNotifyMonotonicUsec()), "STATUS=replacing the supervisor; commands live on")
	case keeper.Recovering:
		n.send("STATUS=the supervisor was killed, starting another; commands live on")
	case keeper.Waiting:
		n.send("STATUS=no supervisor gets ready; commands are kept, see the log")
	case keeper.Stopping:
		n.send(sdnotify.SdNotifyStopping, "STATUS=ending all commands")
	}
}
