package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	// serverStartMax is how long a server may take until it accepts.
	serverStartMax = 10 * time.Second
	// serverStallMax is how long a batch may take.
	serverStallMax = 30 * time.Second
)

// replayServer replays w against a running server, or one started for it.
func replayServer(ctx context.Context, c *ReplayConfig, w *workload, row Row) (Result, error) {
	if len(c.ServerStart) == 0 {
		return replayAt(ctx, c.Server, c.ServerPID, w, c.Batch)
	}
	p, err := startServer(ctx, c.ServerStart, row)
	if err != nil {
		return Result{}, err
	}
	defer p.stop()
	res, err := replayAt(p.running, p.address, p.command.Process.Pid, w, c.Batch)
	if err != nil && p.running.Err() != nil {
		err = context.Cause(p.running)
	}
	return res, err
}

// replayAt replays w against the server at an address: a batch of mg, or of ms
// for writes, one for each request, then ms for those that missed, which go out
// with the next batch. Values are not asked for: they would change nothing but the time.
func replayAt(ctx context.Context, address string, pid int, w *workload, batch int) (Result, error) {
	conn, err := dialServer(ctx, address)
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	stopClosing := context.AfterFunc(ctx, func() { conn.Close() })
	defer stopClosing()
	l := &lookaside{conn: conn, r: bufio.NewReaderSize(conn, 1<<16), w: w, value: make([]byte, objectBytesMax)}

	before, err := serverCPU(pid)
	if err != nil {
		return Result{}, err
	}
	for from, to := range w.batches(batch) {
		if err := l.batch(from, to); err != nil {
			return Result{}, err
		}
	}
	if err := l.batch(0, 0); err != nil {
		return Result{}, err
	}
	after, err := serverCPU(pid)
	if err != nil {
		return Result{}, err
	}
	l.result.CPU = after - before
	l.result.Evictions, err = l.stat("evictions")
	return l.result, err
}

// serverCPU is the CPU time that process pid has used, 0 for none.
func serverCPU(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	use, err := readProcUse("/proc", pid)
	return use.user + use.system, err
}

// lookaside is one connection that gets keys and stores what it missed.
type lookaside struct {
	conn   net.Conn
	r      *bufio.Reader
	w      *workload
	value  []byte   // as long as the largest
	out    []byte   // requests
	missed []uint32 // keys to be stored with the next batch
	result Result
}

// batch stores what the last batch missed, then makes the requests from one up
// to another.
func (l *lookaside) batch(from, to int) error {
	requests := l.w.trace.Requests
	l.out = l.out[:0]
	for _, k := range l.missed {
		l.put(k)
	}
	for i := from; i < to; i++ {
		if l.w.isWrite(i) {
			l.put(requests[i])
			continue
		}
		l.out = append(l.out, "mg "...)
		l.out = appendKeyText(l.out, l.w.trace.Keys[requests[i]])
		l.out = append(l.out, "\r\n"...)
	}
	if err := l.conn.SetDeadline(time.Now().Add(serverStallMax)); err != nil {
		return err
	}
	if _, err := l.conn.Write(l.out); err != nil {
		return err
	}
	for range l.missed {
		if err := l.readStored(); err != nil {
			return err
		}
	}
	l.missed = l.missed[:0]
	for i := from; i < to; i++ {
		if l.w.isWrite(i) {
			if err := l.readStored(); err != nil {
				return err
			}
			continue
		}
		line, err := l.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		hit := string(line) == "HD\r\n"
		if !hit && string(line) != "EN\r\n" {
			return fmt.Errorf("bench: server answered mg with %q", line)
		}
		l.result.count(l.w.sizes[requests[i]], hit)
		if !hit {
			l.missed = append(l.missed, requests[i])
		}
	}
	return nil
}

// put appends the request that stores k.
func (l *lookaside) put(k uint32) {
	l.out = append(l.out, "ms "...)
	l.out = appendKeyText(l.out, l.w.trace.Keys[k])
	l.out = append(l.out, ' ')
	l.out = strconv.AppendUint(l.out, uint64(l.w.sizes[k]), 10)
	l.out = append(l.out, "\r\n"...)
	l.out = append(l.out, l.value[:l.w.sizes[k]]...)
	l.out = append(l.out, "\r\n"...)
}

// readStored reads the answer to a put.
func (l *lookaside) readStored() error {
	line, err := l.r.ReadSlice('\n')
	switch {
	case err != nil:
		return err
	case bytes.HasPrefix(line, []byte("SERVER_ERROR ")):
		l.result.Refused++
	case string(line) != "HD\r\n":
		return fmt.Errorf("bench: server answered ms with %q", line)
	}
	return nil
}

// stat is a number of the server's stats, 0 if it has no such.
func (l *lookaside) stat(name string) (n uint64, err error) {
	if _, err := l.conn.Write([]byte("stats\r\n")); err != nil {
		return 0, err
	}
	for {
		line, err := l.r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		words := strings.Fields(line)
		switch {
		case len(words) == 1 && words[0] == "END":
			return n, nil
		case len(words) < 2 || words[0] != "STAT":
			return 0, fmt.Errorf("bench: server answered stats with %q", line)
		case words[1] == name && len(words) == 3:
			if n, err = strconv.ParseUint(words[2], 10, 64); err != nil {
				return 0, fmt.Errorf("bench: server's %s: %w", name, err)
			}
		}
	}
}

// serverProcess is a server that a replay has started.
type serverProcess struct {
	command *exec.Cmd
	address string
	said    bytes.Buffer    // what it writes; to be read when it has ended
	running context.Context // ends when the process has ended, with what it said
}

// startServer starts a server for a row, on a port that is free.
func startServer(ctx context.Context, words []string, row Row) (*serverProcess, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(address, ":")
	fill := strings.NewReplacer("{port}", port, "{memory}", strconv.Itoa(row.MemoryMiB))
	args := make([]string, len(words))
	for i, word := range words {
		args[i] = fill.Replace(word)
	}
	p := &serverProcess{command: exec.CommandContext(ctx, args[0], args[1:]...), address: address}
	p.command.Stdout, p.command.Stderr = &p.said, &p.said
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	running, ended := context.WithCancelCause(context.WithoutCancel(ctx))
	p.running = running
	go func() {
		err := p.command.Wait()
		ended(fmt.Errorf("bench: %s has ended: %v: %s", args[0], err, bytes.TrimSpace(p.said.Bytes())))
	}()
	return p, nil
}

// stop ends the server and waits until it is gone. It may have ended by
// itself: killing it then changes nothing.
func (p *serverProcess) stop() {
	_ = p.command.Process.Kill()
	<-p.running.Done()
}

// dialServer connects, and waits for a server that has just been started.
func dialServer(ctx context.Context, address string) (net.Conn, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	var dialer net.Dialer
	for deadline := time.Now().Add(serverStartMax); ; time.Sleep(10 * time.Millisecond) {
		conn, err := dialer.DialContext(ctx, network, address)
		switch {
		case err == nil:
			return conn, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case time.Now().After(deadline):
			return nil, err
		}
	}
}
