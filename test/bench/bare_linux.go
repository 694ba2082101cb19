package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// A bareJob is one command of the bare daemon.
type bareJob struct {
	ID   int
	Code int
	done chan struct{}
}

// bareDaemon is what a careful Go program without a journal does: HTTP on a unix
// socket, each command in a group of its own, its output through a pipe into a
// file, its exit code kept in memory: bare SOCKET DIR.
func bareDaemon(args []string) error {
	l, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	var mu sync.Mutex
	jobs := map[int]*bareJob{}
	start := func(r *http.Request) (*bareJob, error) {
		var argv []string
		if err := json.NewDecoder(r.Body).Decode(&argv); err != nil {
			return nil, err
		}
		mu.Lock()
		job := &bareJob{ID: len(jobs) + 1, done: make(chan struct{})}
		jobs[job.ID] = job
		mu.Unlock()
		return job, job.run(argv, filepath.Join(args[1], strconv.Itoa(job.ID)))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		job, err := start(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		<-job.done
		json.NewEncoder(w).Encode(job)
	})
	mux.HandleFunc("POST /start", func(w http.ResponseWriter, r *http.Request) {
		job, err := start(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		json.NewEncoder(w).Encode(map[string]int{"ID": job.ID})
	})
	mux.HandleFunc("GET /wait/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, _ := strconv.Atoi(r.PathValue("id"))
		mu.Lock()
		job := jobs[id]
		mu.Unlock()
		if job == nil {
			http.NotFound(w, r)
			return
		}
		<-job.done
		json.NewEncoder(w).Encode(job)
	})
	return http.Serve(l, mux)
}

func (j *bareJob) run(argv []string, path string) error {
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Stdout, cmd.Stderr = in, in
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	in.Close()
	if err != nil {
		return err
	}
	go func() { // ends with the command
		io.Copy(log, out)
		out.Close()
		log.Close()
		cmd.Wait()
		j.Code = cmd.ProcessState.ExitCode()
		close(j.done)
	}()
	return nil
}

// A bare is a running bare daemon and kept connections to it.
type bare struct {
	cmd    *exec.Cmd
	socket string
	link   []*bareLink
}

type bareLink struct {
	c net.Conn
	r *bufio.Reader
}

func (l *lab) bare() (*bare, error) {
	dir, err := os.MkdirTemp(l.dir, "b")
	if err != nil {
		return nil, err
	}
	b := &bare{socket: filepath.Join(dir, "s"), cmd: exec.Command(l.self, child, "bare", filepath.Join(dir, "s"), dir)}
	b.cmd.Stderr = os.Stderr
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("unix", b.socket)
		if err == nil {
			c.Close()
			return b, nil
		}
		if time.Now().After(end) {
			b.stop()
			return nil, err
		}
	}
}

func (b *bare) stop() {
	for _, k := range b.link {
		k.c.Close()
	}
	b.cmd.Process.Kill()
	b.cmd.Wait()
}

func (b *bare) cpu() time.Duration { return processCPU(b.cmd.Process.Pid) }

// connection is the i-th kept connection. Its client is as small as it can be:
// what it takes is not the daemon's.
func (b *bare) connection(i int) (*bareLink, error) {
	for len(b.link) <= i {
		c, err := net.Dial("unix", b.socket)
		if err != nil {
			return nil, err
		}
		b.link = append(b.link, &bareLink{c, bufio.NewReader(c)})
	}
	return b.link[i], nil
}

func (k *bareLink) call(method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	var req bytes.Buffer
	fmt.Fprintf(&req, "%s %s HTTP/1.1\r\nHost: b\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
	if _, err := k.c.Write(req.Bytes()); err != nil {
		return err
	}
	resp, err := http.ReadResponse(k.r, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s %s", method, path, resp.Status, b)
	}
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	return err
}
