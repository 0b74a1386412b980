package bench

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerIndex is the index that a poll gives for its timer.
const timerIndex = -1

// poll waits until connections can be read or written, or until a time. Each
// descriptor is known by an index that its owner chooses.
type poll struct {
	fd      int
	timerFD int
	events  []unix.EpollEvent // room for what one wait returns
}

// newPoll returns up to events events a wait.
func newPoll(events int) (*poll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("bench: epoll: %w", err)
	}
	timerFD, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bench: timerfd: %w", err)
	}
	p := &poll{fd: fd, timerFD: timerFD, events: make([]unix.EpollEvent, events)}
	// Edge-triggered: each expiry is told once, and nobody need read it.
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: timerIndex}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, timerFD, &event); err != nil {
		p.close()
		return nil, fmt.Errorf("bench: epoll: add timer: %w", err)
	}
	return p, nil
}

func (p *poll) close() {
	unix.Close(p.timerFD)
	unix.Close(p.fd)
}

// add watches fd for reading.
func (p *poll) add(fd, index int) error { return p.control(unix.EPOLL_CTL_ADD, fd, index, false) }

// watch sets whether fd is watched for writing as well as for reading.
func (p *poll) watch(fd, index int, writing bool) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, index, writing)
}

func (p *poll) control(op, fd, index int, writing bool) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(index)}
	if writing {
		event.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(p.fd, op, fd, &event); err != nil {
		return fmt.Errorf("bench: epoll: %w", err)
	}
	return nil
}

// wakeAfter lets a wait return after ns nanoseconds from now.
func (p *poll) wakeAfter(ns int64) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(ns, 1))}
	if err := unix.TimerfdSettime(p.timerFD, 0, &spec, nil); err != nil {
		return fmt.Errorf("bench: timerfd: %w", err)
	}
	return nil
}

// wait returns what is ready, at the latest after timeoutMS milliseconds. The
// events are valid until the next wait.
func (p *poll) wait(timeoutMS int) ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(p.fd, p.events, timeoutMS)
	if err != nil && err != unix.EINTR { // Go's preemption interrupts waits
		return nil, fmt.Errorf("bench: epoll: %w", err)
	}
	return p.events[:max(n, 0)], nil
}

// dial connects to host:port or unix:PATH and returns a non-blocking
// descriptor that Go's own poller does not know.
func dial(server string, secure bool, timeout time.Duration) (fd int, err error) {
	network, address := "tcp", server
	if path, ok := strings.CutPrefix(server, "unix:"); ok {
		network, address = "unix", path
	}
	c, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	if secure {
		return dialTLS(c, timeout)
	}
	defer c.Close()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("bench: connection to %s: %w", server, err)
	}
	var dupErr error
	err = raw.Control(func(own uintptr) { // still non-blocking: the dup shares that
		fd, dupErr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, dupErr); err != nil {
		return 0, fmt.Errorf("bench: connection to %s: %w", server, err)
	}
	return fd, nil
}
